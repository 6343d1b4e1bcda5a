"""What llama.cpp loads is what was verified, whatever happens to the file's name or to the file meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_embedder.engine import llama
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.native_log import NativeLog
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.errors import EmbedderError
from memory_embedder.models.profiles import PROFILES

MINILM = PROFILES["all-MiniLM-L6-v2"]
TEXT = "where is the backup of the old disk"


@pytest.fixture
def model(f16_file: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copy(f16_file, tmp_path / "model.gguf"))


def options(path: Path, digest: str | None = MINILM.file_digest) -> EngineOptions:
    return EngineOptions(path=path, profile=MINILM, batch_tokens=256, contexts=1, digest=digest)


def before_loading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act between the verification of a file and its loading."""
    load = llama.load_backends

    def acting(**chosen: bool) -> Any:
        act()
        return load(**chosen)

    monkeypatch.setattr(llama, "load_backends", acting)


@pytest.mark.promise("model-digest-compared")
@pytest.mark.finding("L9")
def test_another_file_behind_the_same_path_is_not_the_one_that_is_loaded(
    model: Path, f32_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, other = tmp_path / "current.gguf", tmp_path / "next.gguf"
    link.symlink_to(model)
    other.symlink_to(f32_file)
    before_loading(monkeypatch, lambda: other.replace(link))
    reported: list[str] = []
    monkeypatch.setattr(NativeLog, "read", lambda _log, message: reported.append(message))
    engine = LlamaEngine(options(link))
    assert engine.facts.digest == MINILM.file_digest
    assert any("F16" in message for message in reported if "file type" in message)


def test_a_file_that_is_served_with_another_prefix_says_another_digest(f16_file: Path) -> None:
    """Its vectors cannot be compared with those that the same file made without one."""
    described = [replace(MINILM, name="custom", document_prefix=prefix) for prefix in ("", "passage: ")]
    without, prefixed = (LlamaEngine(replace(options(f16_file), profile=one)).facts.digest for one in described)
    assert without != prefixed
    assert {one.partition("+")[0] for one in (without, prefixed)} == {MINILM.file_digest}


def write_weights(model: Path, _other: Path) -> None:
    with model.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"x" * 100)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "written to": write_weights,
    "replaced": lambda model, other: Path(shutil.copy(other, model.with_name("other"))).replace(model),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_file_that_is_changed_between_verification_and_loading_is_refused(
    model: Path, f32_file: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, Path], object]
) -> None:
    before_loading(monkeypatch, lambda: change(model, f32_file))
    with pytest.raises(EmbedderError, match="was changed while it was being loaded"):
        LlamaEngine(options(model))


def test_a_write_after_loading_changes_no_vector(model: Path) -> None:
    engine = LlamaEngine(options(model))
    tokens = engine.encode(TEXT).tokens
    before = engine.computer(1).embed([tokens])[0]
    model.write_bytes(bytes(model.stat().st_size))
    assert (engine.computer(1).embed([tokens])[0] == before).all()


@pytest.mark.promise("model-digest-compared")
@pytest.mark.finding("L9")
def test_a_file_of_another_digest_is_refused_before_its_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(EmbedderError, match="damaged or another model"):
        LlamaEngine(options(path))
    with pytest.raises(EmbedderError, match="not a readable GGUF"):
        LlamaEngine(options(path, digest=None))


@pytest.mark.parametrize(("found", "used"), [((), 64), (("a GPU",), 128)], ids=["absent", "present"])
def test_a_model_is_loaded_as_for_a_cpu_where_that_is_allowed_and_there_is_no_gpu(
    model: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], used: int
) -> None:
    """With what is planned for a GPU, AMX would not be tried, and there would be two contexts of large batches."""
    seen: list[int] = []
    monkeypatch.setattr(llama, "find_gpus", lambda: found)
    monkeypatch.setattr(LlamaEngine, "_load", lambda _, chosen, *__: seen.append(chosen.batch_tokens))
    on_cpu = replace(options(model), batch_tokens=64)
    LlamaEngine(replace(options(model), batch_tokens=128, gpu_layers=-1, on_cpu=on_cpu))
    assert seen == [used]
