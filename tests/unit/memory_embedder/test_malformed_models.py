"""Model files and directories whose numbers are impossible: one sentence each, before anything of that size is made."""

from __future__ import annotations

import json
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memory_embedder.cli import app
from memory_embedder.engine.profile_check import check_profile
from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import convert_bert
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.profiles import ModelProfile, Pooling
from tests.unit.memory_embedder.tiny_bert import change_configuration, write_tiny_bert

MOST_MEMORY = 4 << 30  # of the address space, so that what is allocated without a bound fails at once


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def gguf_file(path: Path, **numbers: int) -> Path:
    """Writes a header without tensors; a negative number is stored as one."""
    facts = {
        "embedding_length": 384,
        "context_length": 512,
        "block_count": 6,
        "attention.head_count": 12,
        "pooling_type": 1,
    }
    pairs = [text(b"general.architecture") + struct.pack("<I", 8) + text(b"bert")]
    for key, value in (facts | {name.replace("__", "."): value for name, value in numbers.items()}).items():
        name = key if key.startswith("tokenizer.") else f"bert.{key}"
        kind, form = (11, "<q") if value < 0 else (10, "<Q")
        pairs.append(text(name.encode()) + struct.pack("<I", kind) + struct.pack(form, value))
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
        check_profile(facts, profile, Path("m.gguf"))
    same = read_facts(gguf_file(tmp_path / "m.gguf", embedding_length_out=384))
    check_profile(same, ModelProfile("own", 384, 256, Pooling.MEAN), Path("m.gguf"))


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
