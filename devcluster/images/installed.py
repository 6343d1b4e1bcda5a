"""Lists what is installed in an image: Debian packages, Python distributions, llama.cpp and model files.

The list is read from the image itself, not from lists of what should have been installed.
"""

import re
from dataclasses import dataclass
from email.parser import HeaderParser
from enum import StrEnum

from devcluster.images.contents import Contents

_INSTALLED = "install ok installed"
_LICENCE_CLASSIFIER = re.compile(r"^License :: (?:OSI Approved :: )?(?P<licence>.+)$")
# The one model that our image contains; its file does not state its licence (docs/embedder.md does).
_MODEL_LICENCES = {"all-MiniLM-L6-v2": "Apache-2.0"}
_LONGEST_LICENCE = 100
_LLAMA_LICENCE = "MIT"
_PYTHON_LICENCE = "PSF-2.0"


class Kind(StrEnum):
    """The kind of an installed item; the first three values are also types of package URLs."""

    DEBIAN = "deb"
    PYTHON = "pypi"
    OTHER = "generic"
    MODEL = "model"


@dataclass(frozen=True, order=True)
class Item:
    """One installed item. `licence` is the licence that it states, or empty; `sha256` is the digest of its file."""

    kind: Kind
    name: str
    version: str = ""
    licence: str = ""
    sha256: str = ""
    architecture: str = ""
    distribution: str = ""


def installed_items(contents: Contents) -> list[Item]:
    """Return everything that is installed in an image, in a fixed order and without duplicates."""
    items = {*_debian_packages(contents), *_python_distributions(contents), *_programs(contents), *_models(contents)}
    return sorted(items)


def _debian_packages(contents: Contents) -> list[Item]:
    release = contents.texts.get("usr/lib/os-release", "")
    codename = re.search(r"^VERSION_CODENAME=\"?(\w+)", release, flags=re.MULTILINE)
    items = []
    for paragraph in contents.texts.get("var/lib/dpkg/status", "").split("\n\n"):
        fields = HeaderParser().parsestr(paragraph.strip())
        if fields["Status"] == _INSTALLED:
            items.append(
                Item(
                    Kind.DEBIAN,
                    fields["Package"],
                    fields["Version"],
                    architecture=fields["Architecture"],
                    distribution=codename[1] if codename else "",
                )
            )
    return items


def _python_distributions(contents: Contents) -> list[Item]:
    items = []
    for path, text in contents.texts.items():
        if path.endswith(".dist-info/METADATA"):
            fields = HeaderParser().parsestr(text)
            name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
            licence = licence_of(
                fields["License-Expression"], fields.get_all("Classifier", []), fields["License"] or ""
            )
            items.append(Item(Kind.PYTHON, name, fields["Version"], licence))
    return items


def licence_of(expression: str | None, classifiers: list[str], text: str) -> str:
    """Return the licence that a Python distribution states.

    An SPDX expression is preferred, then a short text, then the classifiers. A long text is the whole licence, which
    some distributions give instead of its name.
    """
    lines = text.strip().splitlines()
    if expression:
        return expression
    if len(lines) == 1 and len(lines[0]) <= _LONGEST_LICENCE:
        return lines[0]
    found = [match["licence"] for match in map(_LICENCE_CLASSIFIER.match, classifiers) if match]
    return ", ".join(found)


def _programs(contents: Contents) -> list[Item]:
    found = [
        re.search(r"^Version: (\S+)$", text, flags=re.MULTILINE)
        for path, text in contents.texts.items()
        if path.endswith("/llama.pc")
    ]
    llama = next((match[1] for match in found if match), "")
    items = [Item(Kind.OTHER, "llama.cpp", llama, _LLAMA_LICENCE)] if llama else []
    items += [
        Item(Kind.OTHER, "ggml-cuda", llama, _LLAMA_LICENCE, digest)
        for path, digest in contents.digests.items()
        if path.endswith(".so")
    ]
    # Public images of Python contain a Python that is no Debian package, and say which.
    python = contents.environment.get("PYTHON_VERSION")
    if python:
        items.append(Item(Kind.OTHER, "python", python, _PYTHON_LICENCE))
    return items


def _models(contents: Contents) -> list[Item]:
    paths = {path.rpartition("/")[2]: digest for path, digest in contents.digests.items() if path.endswith(".gguf")}
    names = {file.removesuffix(".gguf"): digest for file, digest in paths.items()}
    return [Item(Kind.MODEL, name, "", _MODEL_LICENCES.get(name, ""), digest) for name, digest in names.items()]
