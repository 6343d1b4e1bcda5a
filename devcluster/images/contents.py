"""Reads image archives in the format of `docker save`: layers, settings, and files that list installed software.

Nothing is unpacked. A file that a later layer replaces or removes is not part of the image, so only the last state of
each path counts.
"""

import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from devcluster.errors import DevclusterError

_REMOVED = ".wh."
_EMPTIED = ".wh..wh..opq"
# Files whose text is read; everything else of an image stays where it is.
_TEXTS = ("usr/lib/os-release", "var/lib/dpkg/status", "*.dist-info/METADATA", "*/pkgconfig/llama.pc")
# Files that are known by their digest.
_DIGESTED = ("models/*.gguf", "*/libggml-cuda.so")


@dataclass(frozen=True)
class Contents:
    """The contents of an image archive.

    `layers` has the size of each layer in bytes, uncompressed. `texts` maps the path of each file that lists installed
    software to its text, and `digests` maps the path of each model file and of the CUDA backend to its sha256; paths
    have no leading slash. `environment` and `labels` are settings of the image.
    """

    name: str
    layers: tuple[int, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of all layers together in bytes, uncompressed."""
        return sum(self.layers)


def read_contents(archive: Path) -> Contents:
    """Read the first image of an archive.

    Raises:
        DevclusterError: the archive lacks a file that an image archive has.
    """
    sizes: list[int] = []
    texts: dict[str, str] = {}
    digests: dict[str, str] = {}
    with tarfile.open(archive) as content:
        entry = json.load(_named(content, "manifest.json"))[0]
        config: dict[str, Any] = json.load(_named(content, entry["Config"]))["config"]
        for name in entry["Layers"]:
            member = _named(content, name)
            sizes.append(member.seek(0, 2))
            member.seek(0)
            with tarfile.open(fileobj=member) as layer:
                _apply(layer, texts, digests)
    pairs = (variable.partition("=") for variable in config.get("Env") or ())
    environment = {name: value for name, _, value in pairs}
    return Contents(
        entry["RepoTags"][0], tuple(sizes), texts, digests, environment, labels=dict(config.get("Labels") or {})
    )


def _apply(layer: tarfile.TarFile, texts: dict[str, str], digests: dict[str, str]) -> None:
    """Update `texts` and `digests` with the files that a layer adds, replaces or removes."""
    added_texts: dict[str, str] = {}
    added_digests: dict[str, str] = {}
    for member in layer:
        path = member.name.removeprefix("./").lstrip("/")
        parent, _, name = path.rpartition("/")
        if name.startswith(_REMOVED):
            gone = parent if name == _EMPTIED else "/".join(filter(None, (parent, name.removeprefix(_REMOVED))))
            for known in (texts, digests):
                _remove(known, gone)
        elif member.isfile():
            if _matches(path, _TEXTS):
                added_texts[path] = _file(layer, member).read().decode("utf-8", errors="replace")
            if _matches(path, _DIGESTED):
                added_digests[path] = hashlib.file_digest(_file(layer, member), "sha256").hexdigest()
    texts.update(added_texts)
    digests.update(added_digests)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _remove(known: dict[str, str], gone: str) -> None:
    for path in [path for path in known if path == gone or path.startswith(f"{gone}/")]:
        del known[path]


def _named(archive: tarfile.TarFile, name: str) -> BufferedReader:
    """Open a member of an image archive by its name; if the member is a link, open its target."""
    try:
        return _file(archive, archive.getmember(name))
    except KeyError:
        raise DevclusterError(f"the image archive {archive.name!r} has no {name}", remedy="build it again") from None


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BufferedReader:
    file = archive.extractfile(member)
    if file is None:
        raise DevclusterError(f"{member.name} in {archive.name!r} is not a file", remedy="build the image again")
    return cast("BufferedReader", file)  # which tarfile documents, and its types do not say
