"""Files of texts and reference vectors, against a fake engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_embedder.engine.verification import verify_vectors, write_vectors
from memory_embedder.errors import EmbedderError

VECTOR = json.dumps([1.0] * 384)


def test_written_vectors_are_those_of_the_engine_that_wrote_them(engine: Any, tmp_path: Path) -> None:
    texts, reference = tmp_path / "texts.jsonl", tmp_path / "reference.jsonl"
    texts.write_text('{"text": "one é"}\n\n"two"\r\n', encoding="utf-8")
    write_vectors(engine, texts, reference)
    found = verify_vectors(engine, reference)
    assert found.texts == 2
    assert found.least_cosine == pytest.approx(1)


TEXTS: dict[str, tuple[bytes, str]] = {
    "no text": (b"\n", "holds no texts"),
    "no JSON": (b'"a"\nCANARY\n', "line 2: expected"),
    "no UTF-8": (b'"a"\n"CANARY \xff"\n', "line 2: expected"),
    "an unpaired surrogate": (b'{"text": "CANARY \\ud800"}\n', "line 1: expected"),
    "a number": (b'{"text": 5}\n', "line 1: expected"),
}


@pytest.mark.parametrize(("content", "message"), TEXTS.values(), ids=TEXTS.keys())
def test_texts_that_cannot_be_embedded_are_refused_by_their_line(
    engine: Any, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "texts.jsonl").write_bytes(content)
    with pytest.raises(EmbedderError, match=message) as refused:
        write_vectors(engine, tmp_path / "texts.jsonl", tmp_path / "out.jsonl")
    assert "CANARY" not in str(refused.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_vectors_that_cannot_be_written_are_one_sentence(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('"one"')
    with pytest.raises(EmbedderError, match=r"out\.jsonl cannot be written \(Not a directory\)"):
        write_vectors(engine, tmp_path / "texts.jsonl", tmp_path / "texts.jsonl" / "out.jsonl")
    with pytest.raises(EmbedderError, match=r"full cannot be written \(No space left on device\)"):
        write_vectors(engine, tmp_path / "texts.jsonl", Path("/dev/full"))


REFERENCES: dict[str, tuple[str, str]] = {
    "no vectors": ("", "holds no vectors"),
    "no vector": ('{"text": "a"}', "line 1: expected"),
    "vectors of different lengths": (
        f'{{"text": "a", "embedding": {VECTOR}}}\n{{"text": "b", "embedding": [1]}}',
        "1-dimensional vectors but the model yields 384",
    ),
}


@pytest.mark.parametrize(("content", "message"), REFERENCES.values(), ids=REFERENCES.keys())
def test_a_reference_that_cannot_be_compared_is_refused(
    engine: Any, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "reference.jsonl").write_text(content)
    with pytest.raises(EmbedderError, match=message):
        verify_vectors(engine, tmp_path / "reference.jsonl")


def test_a_file_that_cannot_be_read_is_named(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="cannot be read"):
        verify_vectors(engine, tmp_path)
