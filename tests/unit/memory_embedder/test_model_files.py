"""Model files: what is refused before llama.cpp opens one, impossible numbers included, and conversion."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from memory_embedder.cli import app
from memory_embedder.engine.backends import choose_variant
from memory_embedder.engine.profile_check import check_profile
from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import WeightType, convert_bert
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.gguf_header import GgufFacts, read_facts
from memory_embedder.models.profiles import PROFILES, ModelProfile, Pooling, find_profile
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
        strips_accents=True,
        causal=False,
        token_types=2,
        classifier_outputs=0,
        vocabulary=9,
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


def test_weights_in_a_format_that_is_not_read_are_named_with_what_to_do(hf_directory: Path, tmp_path: Path) -> None:
    """To download them again, as for a broken file, would never help."""
    path = hf_directory / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    for described in header.values():
        described["dtype"] = "BF16"
        described["shape"][0] *= 2  # as many bytes
    changed = json.dumps(header).encode()
    path.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + size :])
    with pytest.raises(EmbedderError, match=r"in the number format BF16, .* convert the weights to F16 or F32 first\."):
        convert_bert(hf_directory, tmp_path / "out.gguf")


def fill_the_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def write_a_part(*_: object) -> None:
    raise OSError("8 requested and 4 written")  # NumPy's, without a number of the system


@pytest.mark.parametrize("where", ["a file as a folder", "a full volume", "a volume that becomes full"])
def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(
    hf_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    out = tmp_path / "out.gguf"
    if "volume" in where:
        fails = fill_the_disk if where == "a full volume" else write_a_part
        monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", fails)
    else:
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "out.gguf"
    with pytest.raises(EmbedderError, match=r"out\.gguf cannot be written \((?!None)"):
        convert_bert(hf_directory, out)
    assert not list(tmp_path.glob("out.gguf*"))


def test_a_package_for_which_there_is_no_room_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as archive:
        archive.writestr("model.zip", b"")
    monkeypatch.setattr(zipfile.ZipFile, "extract", fill_the_disk)
    with pytest.raises(EmbedderError, match=r"unpacked \(No space left on device\); .*TMPDIR"):
        convert_package(tmp_path / "p.whl", tmp_path / "out.gguf")


MODULES = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another family": (
        lambda d: (d / "config.json").write_text('{"model_type": "t5"}'),
        "'t5' model; this converter takes bert and xlm-roberta",
    ),
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


@pytest.mark.promise("model-widths-compared")
@pytest.mark.parametrize("missing", [None, 0x00, 0xC3])
def test_a_vocabulary_without_a_piece_for_each_byte_is_refused_where_characters_are_written_as_bytes(
    tmp_path: Path, missing: int | None
) -> None:
    """llama.cpp would end the process at the first character that it has no piece for."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "bert")
    writer.add_embedding_length(384)
    writer.add_context_length(512)
    writer.add_block_count(6)
    writer.add_head_count(12)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", *(f"<0x{byte:02X}>" for byte in range(256) if byte != missing)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    if missing is None:
        assert read_facts(tmp_path / "m.gguf").layers == 6
    else:
        with pytest.raises(EmbedderError, match="no pieces for all bytes in its vocabulary"):
            read_facts(tmp_path / "m.gguf")


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def gguf_file(path: Path, name: str | None = None, **numbers: int) -> Path:
    """Writes a header without tensors, of a model of that name; a negative number is stored as one."""
    facts = {
        "embedding_length": 384,
        "context_length": 512,
        "block_count": 6,
        "attention.head_count": 12,
        "pooling_type": 1,
    }
    pairs = [text(b"general.architecture") + struct.pack("<I", 8) + text(b"bert")]
    for key, value in (facts | {key.replace("__", "."): value for key, value in numbers.items()}).items():
        full = key if key.startswith("tokenizer.") else f"bert.{key}"
        kind, form = (11, "<q") if value < 0 else (10, "<Q")
        pairs.append(text(full.encode()) + struct.pack("<I", kind) + struct.pack(form, value))
    if name is not None:
        pairs.append(text(b"general.name") + struct.pack("<I", 8) + text(name.encode()))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))
    return path


NUMBERS = (
    "embedding_length",
    "embedding_length_out",
    "context_length",
    "block_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "pooling_type",
    "tokenizer.ggml.token_type_count",
)


@pytest.mark.promise("model-widths-compared")
@pytest.mark.finding("security L6")
@pytest.mark.finding("embedder 5")
@pytest.mark.parametrize("value", [-384, -1, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_that_no_model_has_is_refused_by_its_name(tmp_path: Path, key: str, value: int) -> None:
    """The estimate of memory, which is computed from it, would be negative or beyond all bounds."""
    path = gguf_file(tmp_path / "m.gguf", **{key.replace(".", "__"): value})
    with pytest.raises(EmbedderError, match=rf"m\.gguf has the number {value} as '.*{key}'"):
        read_facts(path)


@pytest.mark.finding("security L6")
@pytest.mark.parametrize("key", [key for key in NUMBERS if not key.endswith(("type", "type_count"))])
def test_a_model_of_nothing_is_refused_by_the_name_of_what_is_zero(tmp_path: Path, key: str) -> None:
    path = gguf_file(tmp_path / "m.gguf", **{key.replace(".", "__"): 0})
    with pytest.raises(EmbedderError, match=f"the number 0 as 'bert.{key}'"):
        read_facts(path)


@pytest.mark.finding("embedder 5")
@pytest.mark.parametrize("declared", [384, 376])
def test_vectors_of_another_width_than_the_network_are_refused(tmp_path: Path, declared: int) -> None:
    """Whether the vectors or the network have the declared width."""
    facts = read_facts(gguf_file(tmp_path / "m.gguf", embedding_length_out=376))
    profile = ModelProfile("own", declared, 256, Pooling.MEAN)
    with pytest.raises(EmbedderError, match=r"376 numbers|yields 384 dimensions"):
        check_profile(facts, profile, Path("m.gguf"), digest=None)
    same = read_facts(gguf_file(tmp_path / "m.gguf", embedding_length_out=384))
    check_profile(same, ModelProfile("own", 384, 256, Pooling.MEAN), Path("m.gguf"), digest=None)


@pytest.mark.finding("embedder 10")
def test_a_file_that_names_another_model_is_not_served_as_a_known_one(tmp_path: Path) -> None:
    """Its vectors would be plausible; who gives its digest has said that this file is meant."""
    known = find_profile("all-MiniLM-L6-v2")
    for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "All MiniLM L6 V2", None):
        check_profile(read_facts(gguf_file(tmp_path / "m.gguf", name)), known, Path("m.gguf"), digest=None)
    other = read_facts(gguf_file(tmp_path / "m.gguf", "e5-small-v2"))
    with pytest.raises(EmbedderError, match="it is the model 'e5-small-v2', not all-MiniLM-L6-v2"):
        check_profile(other, known, Path("m.gguf"), digest=None)
    check_profile(other, known, Path("m.gguf"), digest="0" * 64)
    check_profile(other, ModelProfile("own", 384, 256, Pooling.MEAN), Path("m.gguf"), digest=None)


def test_a_name_that_a_file_states_is_short_and_printable(tmp_path: Path) -> None:
    assert read_facts(gguf_file(tmp_path / "m.gguf", "e5\x1b[2J\n" + "x" * 1000)).name == "e5[2J" + "x" * 193
    assert read_facts(gguf_file(tmp_path / "m.gguf", "\n")).name is None


@pytest.mark.promise("model-digest-compared")
def test_the_digest_of_a_file_is_compared_before_its_facts_are_taken_from_its_header(tmp_path: Path) -> None:
    """Also where the settings are completed by it, before anything is loaded."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(EmbedderError, match="damaged or another model"):
        EmbedderSettings(model_file=path, digest="0" * 64).profile()
    digest = hashlib.sha256(gguf_file(path).read_bytes()).hexdigest()
    assert EmbedderSettings(model_file=path, digest=digest).profile().dimensions == 384


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def sized(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


BOUNDLESS: dict[str, tuple[int, int, list[bytes]]] = {
    "pairs": (0, 5000, [pair(b"a.%d" % number, 10, sized(1)) for number in range(5000)]),
    "tensors": (70_000, 0, [text(b"t%d" % number) + struct.pack("<IIQ", 0, 0, 0) for number in range(70_000)]),
    "a key": (0, 1, [pair(b"x" * 2000, 10, sized(1))]),
    "a name": (0, 1, [pair(b"general.name", 8, text(b"x" * (2 << 20)))]),
    "a skipped text": (0, 1, [pair(b"tokenizer.chat_template", 8, sized(2**64 - 1))]),
    "skipped numbers": (0, 1, [pair(b"a.b", 9, struct.pack("<IQ", 10, 2**61))]),
    "skipped strings": (0, 1, [pair(b"a.b", 9, struct.pack("<IQ", 8, 2**23) + bytes(8 << 23))]),
}


@pytest.mark.parametrize("name", BOUNDLESS)
def test_what_a_header_has_more_of_than_any_model_is_refused_without_reading_on(tmp_path: Path, name: str) -> None:
    tensors, pairs, parts = BOUNDLESS[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + b"".join(parts))
    with pytest.raises(EmbedderError, match="not a readable GGUF"):
        read_facts(path)


def test_texts_of_a_header_that_are_not_used_are_not_kept(tmp_path: Path) -> None:
    """A file may have a thousand of them, of any length; a chat template is one."""
    path, numbers = tmp_path / "m.gguf", gguf_file(tmp_path / "n.gguf").read_bytes()
    long = [pair(b"a.%d" % number, 8, text(bytes(1 << 20))) for number in range(16)]
    (count,) = struct.unpack_from("<Q", numbers, 16)
    path.write_bytes(numbers[:16] + sized(count + len(long)) + numbers[24:] + b"".join(long))
    tracemalloc.start()
    assert read_facts(path).dimensions == 384
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_what_a_file_states_need_not_be_said_again(tmp_path: Path) -> None:
    file = gguf_file(tmp_path / "e5-small-v2.gguf", "E5 Small v2", context_length=512, pooling_type=1)
    assert EmbedderSettings(model_file=file).profile() == ModelProfile("e5-small-v2", 384, 512, Pooling.MEAN)
    given = EmbedderSettings(model_file=file, model="mine", max_tokens=128, pooling=Pooling.CLS, query_prefix="query: ")
    assert given.profile() == ModelProfile("mine", 384, 128, Pooling.CLS, query_prefix="query: ")
    with pytest.raises(EmbedderError, match="--dimensions 512 was asked for but e5-small-v2 yields 384"):
        EmbedderSettings(model_file=file, dimensions=512).profile()


def test_whoever_serves_a_model_of_unknown_prefixes_is_warned_unless_they_are_said(tmp_path: Path) -> None:
    """Saying that there are none is enough."""
    file = gguf_file(tmp_path / "e5-small-v2.gguf", "E5 Small v2")
    assert EmbedderSettings(model_file=file).has_unknown_prefixes()
    assert not EmbedderSettings(model_file=file, query_prefix="").has_unknown_prefixes()
    assert not EmbedderSettings().has_unknown_prefixes()


def test_a_file_without_a_word_on_pooling_is_refused_with_the_option(tmp_path: Path) -> None:
    file = gguf_file(tmp_path / "m.gguf", "other", pooling_type=0)
    with pytest.raises(EmbedderError, match="--pooling"):
        EmbedderSettings(model_file=file).profile()
    assert EmbedderSettings(model_file=file, pooling=Pooling.CLS).profile().pooling is Pooling.CLS


def test_a_file_of_a_known_model_is_served_as_that_with_its_prefixes(tmp_path: Path) -> None:
    file = gguf_file(tmp_path / "any.gguf", "BAAI/bge-small-en-v1.5", pooling_type=2)
    assert EmbedderSettings(model_file=file).profile() == find_profile("bge-small-en-v1.5")


def tokenizer(directory: Path, vocabulary: object, **more: object) -> None:
    model = {"type": "WordPiece", "vocab": vocabulary}
    (directory / "tokenizer.json").write_text(json.dumps({"model": model} | more))


WHOLE = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
DAMAGES: dict[str, Callable[[Path], object]] = {
    "a number of 10^12": lambda d: tokenizer(d, WHOLE | {"x": 10**12}),
    "a number as text": lambda d: tokenizer(d, {"[UNK]": "0"}),
    "a number that is true": lambda d: tokenizer(d, WHOLE | {"x": True}),
    "a fractional number": lambda d: tokenizer(d, WHOLE | {"x": 1.5}),
    "a negative number": lambda d: tokenizer(d, {"[UNK]": -5, "[CLS]": 1}),
    "a list": lambda d: tokenizer(d, ["a"]),
    "a model that is a list": lambda d: (d / "tokenizer.json").write_text('{"model": [1]}'),
    "a normaliser that is a list": lambda d: tokenizer(d, WHOLE, normalizer=[1]),
    "a special token that is a list": lambda d: (d / "tokenizer_config.json").write_text('{"unk_token": [1]}'),
    "a special token of lists": lambda d: (d / "tokenizer_config.json").write_text('{"unk_token": {"content": []}}'),
    "deep nesting": lambda d: (d / "tokenizer.json").write_text("[" * 100_000),
    "a vocabulary that is no text": lambda d: (d / "vocab.txt").write_bytes(b"\xff\xfe"),
    "a vocabulary of a million lines": lambda d: (d / "vocab.txt").write_bytes(b"x\n" * 1_100_000),
    "10^12 layers": lambda d: change_configuration(d, num_hidden_layers=10**12),
    "a million layers": lambda d: change_configuration(d, num_hidden_layers=10**6),
    "no layers": lambda d: change_configuration(d, num_hidden_layers=0),
    "half a layer": lambda d: change_configuration(d, num_hidden_layers=1.5),
    "negative heads": lambda d: change_configuration(d, num_attention_heads=-2),
    "a width that is true": lambda d: change_configuration(d, hidden_size=True),
    "10^12 positions": lambda d: change_configuration(d, max_position_embeddings=10**12),
    "an infinite epsilon": lambda d: change_configuration(d, layer_norm_eps=float("inf")),
    "an epsilon that is true": lambda d: change_configuration(d, layer_norm_eps=True),
}


@pytest.mark.promise("conversion-bounded")
@pytest.mark.finding("security L5")
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_malformed_directory_is_refused_by_one_sentence(tmp_path: Path, damage: str) -> None:
    directory = write_tiny_bert(tmp_path)
    DAMAGES[damage](directory)
    with pytest.raises(EmbedderError, match=r"again|not WordPiece"):
        convert_bert(directory, tmp_path / "out.gguf")
    shown = CliRunner().invoke(app, ["convert", str(directory), str(tmp_path / "out.gguf")])
    assert shown.exit_code != 0
    assert "Traceback" not in shown.output
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.promise("conversion-bounded")
@pytest.mark.finding("security L5")
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("inner", [False, True], ids=["the archive", "the archive inside"])
@pytest.mark.parametrize("members", [1, 1001], ids=["too large", "too many"])
def test_an_archive_is_not_unpacked_beyond_its_bounds(tmp_path: Path, *, inner: bool, members: int) -> None:
    """By what it says of itself; no more than that is unpacked."""
    written = tmp_path / "model.zip"
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            archive.writestr(f"member-{number}", b"x")
        if members == 1:
            archive.infolist()[0].file_size = 3 << 30
    if inner:
        with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as outer:
            outer.write(written, "package/model.zip")
        written = tmp_path / "wheel.whl"
    with pytest.raises(EmbedderError, match="unpacks to more than 1000 files or 2048 MiB"):
        convert_package(written, tmp_path / "out.gguf")


@pytest.mark.finding("security L5")
@pytest.mark.parametrize("damage", ["says less than it holds", "is encrypted", "is packed by an unknown method"])
def test_an_archive_that_says_the_wrong_thing_is_refused_by_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b"x" * 100_000)
        if damage == "says less than it holds":
            archive.infolist()[0].file_size = 10
        elif damage == "is encrypted":
            archive.infolist()[0].flag_bits |= 1
        else:
            archive.infolist()[0].compress_type = 99
    with pytest.raises(EmbedderError, match="not a readable wheel or zip"):
        convert_package(path, tmp_path / "out.gguf")
