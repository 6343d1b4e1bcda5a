"""Model files: what is refused before llama.cpp opens one, and conversion."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from memory_embedder.engine.backends import choose_variant
from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import WeightType, convert_bert
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.gguf_header import GgufFacts, read_facts
from memory_embedder.models.profiles import PROFILES, Pooling
from memory_embedder.scheduling.plan import plan_load
from memory_embedder.settings import EmbedderSettings
from tests.unit.memory_embedder.tiny_bert import POSITIONS, WIDTH, change_configuration, write_tiny_bert


@pytest.fixture
def hf_directory(tmp_path: Path) -> Path:
    return write_tiny_bert(tmp_path)


def test_a_converted_header_says_what_the_configuration_said(hf_directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.gguf"
    convert_bert(hf_directory, out, weights=WeightType.Q8_0)
    facts = read_facts(out)
    assert dataclasses.replace(facts, file_bytes=0) == GgufFacts(
        architecture="bert",
        name="tiny",
        dimensions=WIDTH,
        output_width=WIDTH,
        context_length=POSITIONS,
        layers=1,
        heads=2,
        key_value_width=WIDTH,
        pooling=Pooling.CLS,
        quantised=True,
        decomposes=True,
        causal=False,
        token_types=2,
        classifier_outputs=0,
        file_bytes=0,
    )
    assert not list(tmp_path.glob("*.partial"))


def test_vocabulary_marks_word_starts_and_protects_control_tokens(hf_directory: Path, tmp_path: Path) -> None:
    convert_bert(hf_directory, tmp_path / "tiny.gguf")
    reader = gguf.GGUFReader(tmp_path / "tiny.gguf")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    assert tokens == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581[unused0]", "\u2581mem", "ory", "\u2581ory"]
    assert types == [3, 3, 3, 3, 3, 5, 1, 1, 1]
    assert {tensor.name for tensor in reader.tensors} >= {
        "token_embd.weight",
        "blk.0.attn_q.weight",
        "token_embd_norm.bias",
    }
    assert not any("pooler" in tensor.name for tensor in reader.tensors)


def test_a_model_of_more_embeddings_than_pieces_gets_pieces_that_no_text_has(
    hf_directory: Path, tmp_path: Path
) -> None:
    words, path = "bert.embeddings.word_embeddings.weight", hf_directory / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {words: np.vstack([weights[words], np.zeros((3, WIDTH), np.float32)])}, path)
    (hf_directory / "modules.json").write_text(json.dumps(MODULES[:2]))
    convert_bert(hf_directory, tmp_path / "tiny.gguf")
    reader = gguf.GGUFReader(tmp_path / "tiny.gguf")
    assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == 12
    assert reader.fields["tokenizer.ggml.token_type"].contents()[-4:] == [1, 5, 5, 5]


def test_a_matrix_that_cannot_be_quantised_is_named(hf_directory: Path, tmp_path: Path) -> None:
    path = hf_directory / "model.safetensors"
    narrow = {name: np.ascontiguousarray(data[..., :20]) for name, data in load_file(path).items()}
    save_file(narrow, path)
    with pytest.raises(EmbedderError, match=r"'token_embd.weight' of shape .* cannot be stored as Q8_0"):
        convert_bert(hf_directory, tmp_path / "out.gguf", weights=WeightType.Q8_0)


def test_conversion_is_the_same_byte_for_byte_so_that_digests_can_be_pinned(hf_directory: Path, tmp_path: Path) -> None:
    convert_bert(hf_directory, tmp_path / "a.gguf")
    convert_bert(hf_directory, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


MODULES = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another family": (lambda d: (d / "config.json").write_text('{"model_type": "t5"}'), "'t5' model"),
    "no configuration": (lambda d: (d / "config.json").unlink(), "cannot be read"),
    "unclear pooling": (lambda d: (d / "1_Pooling/config.json").write_text("{}"), "exactly one"),
    "no vocabulary": (lambda d: (d / "vocab.txt").unlink(), "neither tokenizer.json nor vocab.txt"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "no .safetensors"),
    "another tokenizer": (
        lambda d: (d / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}}}'),
        "BPE tokenizer",
    ),
    "a configuration without a number": (
        lambda d: change_configuration(d, hidden_size=None),
        r"config\.json lacks the number 'hidden_size'",
    ),
    "layers after pooling": (lambda d: (d / "modules.json").write_text(json.dumps(MODULES)), "module 'Dense'"),
    "modules that are none": (lambda d: (d / "modules.json").write_text("{}"), "module"),
    "a broken tokenizer configuration": (
        lambda d: (d / "tokenizer_config.json").write_text("{"),
        r"tokenizer_config\.json cannot be read as JSON",
    ),
    "a tokenizer without a vocabulary": (
        lambda d: (d / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}'),
        "no vocabulary",
    ),
    "weights twice": (lambda d: shutil.copy(d / "model.safetensors", d / "copy.safetensors"), "one set of weights"),
    "broken weights": (lambda d: (d / "model.safetensors").write_bytes(b"x" * 24), r"not a readable \.safetensors"),
    "a vocabulary of another model": (
        lambda d: (d / "vocab.txt").write_text((d / "vocab.txt").read_text() + "more\n"),
        "10 pieces but the model 9 embeddings",
    ),
    "vocabulary without [SEP]": (lambda d: (d / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n"), r"no \[SEP\] token"),
}


@pytest.mark.parametrize(("damage", "message"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_directory_that_cannot_be_converted_is_refused_with_the_reason(
    hf_directory: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(hf_directory)
    with pytest.raises(EmbedderError, match=message):
        convert_bert(hf_directory, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 100, b"PK\x03\x04" + b"\0" * 50])
def test_a_file_that_is_no_model_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(EmbedderError, match=r"broken\.gguf"):
        read_facts(path)
    with pytest.raises(EmbedderError, match=r"absent\.gguf cannot be opened"):
        read_facts(tmp_path / "absent.gguf")
    with pytest.raises(EmbedderError, match="not a readable wheel"):
        convert_package(path, tmp_path / "out.gguf")


def test_the_best_kernels_that_run_here_are_chosen_and_amx_is_left_out_where_it_fails() -> None:
    scores = {"haswell": 64, "zen4": 448, "sapphirerapids": 960}
    assert choose_variant(scores, avoid_amx=False) == "sapphirerapids"
    assert choose_variant(scores, avoid_amx=True) == "zen4"
    assert choose_variant({"haswell": 64, "zen4": 0}, avoid_amx=True) == "haswell"
    assert choose_variant({"haswell": 0}, avoid_amx=False) is None


def test_plans_share_cores_out_to_single_threaded_contexts_and_two_contexts_to_a_gpu() -> None:
    def default(settings: EmbedderSettings, threads: int) -> tuple[int, int, int]:
        plan = plan_load(settings, PROFILES["all-MiniLM-L6-v2"], threads).candidates[0]
        return plan.workers.general, plan.workers.threads, plan.batch_tokens

    assert default(EmbedderSettings(), 2) == (2, 1, 128)
    assert default(EmbedderSettings(), 32) == (8, 4, 128)
    assert default(EmbedderSettings(gpu_layers=-1), 4) == (2, 2, 2048)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "gpt-5"}, "No profile is known for model 'gpt-5'"),
        ({"dimensions": 1024}, "yields 384"),
        ({"model": "custom", "dimensions": 384}, "any other model with --model-file"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(EmbedderError, match=message):
        EmbedderSettings(**values).profile()  # type: ignore[arg-type]


def write_header(path: Path, *, token_types: object = 1, weights: gguf.GGMLQuantizationType) -> None:
    """Writes a model file that has the least metadata, one matrix, and no word on its number format."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(1)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(1)
    writer.add_key_value("tokenizer.ggml.token_type_count", token_types, gguf.GGUFValueType.get_type(token_types))
    matrix = gguf.quants.quantize(np.ones((2, WIDTH), np.float32), weights)
    writer.add_tensor("token_embd.weight", matrix, raw_dtype=weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("weights", "quantised"), [("F32", False), ("F16", False), ("BF16", False), ("Q8_0", True)])
def test_a_file_is_quantised_if_a_matrix_is_whatever_its_metadata_says(
    tmp_path: Path, weights: str, *, quantised: bool
) -> None:
    write_header(tmp_path / "m.gguf", weights=gguf.GGMLQuantizationType[weights])
    assert read_facts(tmp_path / "m.gguf").quantised == quantised


@pytest.mark.parametrize("token_types", ["two", float("nan"), True])
def test_metadata_of_another_type_is_refused_by_its_name(tmp_path: Path, token_types: object) -> None:
    write_header(tmp_path / "m.gguf", token_types=token_types, weights=gguf.GGMLQuantizationType.F32)
    with pytest.raises(EmbedderError, match=r"metadata 'tokenizer\.ggml\.token_type_count'"):
        read_facts(tmp_path / "m.gguf")
