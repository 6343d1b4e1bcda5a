"""Refusals that quote a model file: one line of bounded length that drives no terminal and that Kubernetes can keep."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from memory_embedder import cli
from memory_embedder.telemetry.termination import write_termination_message
from tests.unit.memory_embedder.tiny_bert import change_configuration, write_tiny_bert

MOST_BYTES = 4096  # of a termination message that Kubernetes keeps
HOSTILE = "x\x1b]52;c;eA==\x07\x9b2J\u202e\nforged line"
LONG = HOSTILE + "\U0001f4be" * 100_000


def write_tokenizer(directory: Path, kind: str) -> None:
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"type": kind, "vocab": {}}}))


def write_module(directory: Path, kind: str) -> None:
    (directory / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{kind}"}]))


def write_tensor(directory: Path, name: str) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    save_file({name: weights.popitem()[1], **weights}, path)


def write_family(directory: Path, family: str) -> None:
    change_configuration(directory, model_type=family)


def write_architecture(path: Path, architecture: str) -> None:
    """Writes a file in GGUF whose only metadata is this name of an architecture."""
    name, value = b"general.architecture", architecture.encode()
    pair = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(value)) + value
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair)


QUOTED: dict[str, Callable[[Path, str], None]] = {
    "family": write_family,
    "kind of tokenizer": write_tokenizer,
    "module": write_module,
    "tensor": write_tensor,
}
TEXTS = {"obeyed": HOSTILE, "long": LONG}
CASES = {f"{field}, {name}": (field, text) for field in QUOTED for name, text in TEXTS.items()}
CASES["family, half a character"] = ("family", "\ud800")


def refusal(
    arguments: list[str], log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, bytes]:
    """What `memory-embedder` with these arguments writes on stderr, and into the termination log, when it refuses."""
    log.touch()
    monkeypatch.setattr(cli, "configure_logging", lambda: None)
    monkeypatch.setattr(cli, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(cli, "write_termination_message", partial(write_termination_message, log=log))
    monkeypatch.setattr(sys, "argv", ["memory-embedder", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().err, log.read_bytes()


def check_shown(shown: str, kept: bytes) -> None:
    assert shown.startswith("error: ")
    assert shown.removesuffix("\n").isprintable()
    assert len(kept) <= MOST_BYTES
    assert shown == f"error: {json.loads(kept)['message']}\n"


@pytest.mark.promise("model-file-drives-no-terminal")
@pytest.mark.finding("security S8")
@pytest.mark.parametrize(("field", "text"), CASES.values(), ids=CASES)
def test_a_refused_directory_drives_no_terminal_and_its_refusal_is_kept_whole(
    field: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_tiny_bert(tmp_path)
    QUOTED[field](directory, text)
    shown, kept = refusal(["convert", str(directory), str(tmp_path / "m.gguf")], tmp_path / "log", monkeypatch, capsys)
    check_shown(shown, kept)
    assert shown.endswith((".\n", "encoder.\n")), "the remedy at the end stays"


@pytest.mark.promise("model-file-drives-no-terminal")
@pytest.mark.finding("security S8")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_refused_file_drives_no_terminal_and_its_refusal_is_kept_whole(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    write_architecture(path, text)
    shown, kept = refusal(["vectors", str(path), str(path), str(path)], tmp_path / "log", monkeypatch, capsys)
    check_shown(shown, kept)
    assert shown.endswith("it is no embedding model.\n")
