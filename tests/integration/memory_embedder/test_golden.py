"""The converted model gives what the published weights give, by an independent computation."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Published

from memory_embedder.engine import llama
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import PROFILES
from tests.integration.memory_embedder.many_languages import SENTENCES, mixed_texts, random_texts

MINILM = PROFILES["all-MiniLM-L6-v2"]


def test_the_default_model_converts_to_the_file_whose_digest_is_published(f16_file: Path) -> None:
    with ModelFile(f16_file) as file:
        file.verified_digest(MINILM.file_digest)


TEXTS = {
    "short": "hello",
    "sentence": "The NAS is backed up to the second disk every night at three.",
    "punctuation": 'wait... what?! (no) [yes] {maybe} a/b-c_d e@f.org #42 $5 100% ~x `y` "z" <tag>',
    "special tokens as text": "what does [SEP] mean, and [CLS] or [MASK]?",
    "upper case": "PostgreSQL ON Kubernetes WITH CloudNativePG",
    "accents": "Zürich café naïve coöperate Ångström São Paulo Đặng",
    "german": "Die Straße führt über Fußgängerübergänge nach Köln.",
    "cyrillic": "Где лежит резервная копия?",
    "greek": "Καλημέρα κόσμε",
    "cjk": "我的记忆 and 日本語のテキスト mixed",
    "korean": "한국어 텍스트",
    "arabic": "مرحبا بالعالم",
    "emoji": "deploy 🚀 done ✅ café",
    "combining": "e\u0301te\u0301 n\u0303",
    "control characters": "a\x00b\x07c\u200bd\ufeffe",
    "whitespace": "  tabs\tand\nlines\r\n  and\u00a0non-breaking\u3000ideographic ",
    "numbers": "192.168.1.254/24 port 5432 v0.8.5 2024-05-01T12:00:00Z",
    "rare words": "antidisestablishmentarianism floccinaucinihilipilification kubectl",
    "at the window": "memory " * 254,
    "beyond the window": "alpha beta gamma delta " * 200,
    "long without spaces": "a" * 90,
    "the least that fills a tile": "where is the backup of the old disk " * 4 + "now and then where is it kept",
    "almost a tile": "where is the backup of the old disk " * 7,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_tokens_are_those_of_the_published_tokenizer(f32_engine: LlamaEngine, reference: Any, text: str) -> None:
    assert f32_engine.encode(text).tokens.tolist() == reference.tokenize(text)


@pytest.fixture(scope="module")
def published(model_directory: Path) -> Published:
    """The tokenizer that the model's publisher ships, by the library that reads it, without its limit of length."""
    published = Published.from_file(str(model_directory / "tokenizer.json"))
    published.no_truncation()
    published.no_padding()
    return published


@pytest.mark.finding("embedder 6")
def test_twenty_thousand_texts_of_all_scripts_have_the_tokens_of_the_published_library(
    f32_engine: LlamaEngine, published: Published
) -> None:
    """But for special tokens as text, which that library takes for tokens; no caller may end a text early here."""
    plain = [text for name, text in TEXTS.items() if name != "special tokens as text"]
    texts = [*plain, *SENTENCES.values(), *random_texts(of_each=50), *mixed_texts(20_000)]
    different = [ascii(text) for text in texts if f32_engine.encode(text).tokens.tolist() != in_window(published, text)]
    assert different == []


@pytest.mark.finding("embedder 6")
@pytest.mark.parametrize(
    "text",
    [
        "यह मेरी दुकान की चाबी कहाँ है", "আমার বাড়ির চাবি কোথায়", "எனது சாவி எங்கே உள்ளது", "a\u0085b", "a\u2581b",
        "sha512 of it: " + "0a1b2c3d" * 16, "x" * 100, "x" * 101, "Ünï" * 34, "漢" * 120, "a.b" * 60,
        "\u200b".join("y" * 120),
    ],
    ids=ascii,
)  # fmt: skip
def test_vowel_signs_and_long_words_are_those_of_the_published_library(
    f32_engine: LlamaEngine, published: Published, text: str
) -> None:
    assert f32_engine.encode(text).tokens.tolist() == in_window(published, text)


def in_window(published: Published, text: str) -> list[int]:
    tokens: list[int] = published.encode(text).ids
    return tokens if len(tokens) <= MINILM.max_tokens else [*tokens[: MINILM.max_tokens - 1], tokens[-1]]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_f32_vectors_have_a_cosine_of_0_999_with_the_reference(
    f32_engine: LlamaEngine, reference: Any, text: str
) -> None:
    computer = f32_engine.computer(1)
    vector = computer.embed([f32_engine.encode(text).tokens])[0]
    computer.close()
    assert float(vector @ reference.embed(text)) >= 0.9999
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("kind", "least"), [("f16_file", 0.9999), ("q8_file", 0.99)])
def test_smaller_weights_stay_close_to_the_reference(
    request: pytest.FixtureRequest, reference: Any, kind: str, least: float
) -> None:
    path: Path = request.getfixturevalue(kind)
    engine = LlamaEngine(EngineOptions(path=path, profile=MINILM, batch_tokens=256, contexts=1))
    computer = engine.computer(1)
    for text in TEXTS.values():
        vector = computer.embed([engine.encode(text).tokens])[0]
        assert float(vector @ reference.embed(text)) >= least
    computer.close()
    engine.close()


def test_a_texts_vector_does_not_depend_on_the_other_texts_of_its_batch(f32_engine: LlamaEngine) -> None:
    computer = f32_engine.computer(1)
    tokens = [f32_engine.encode(text).tokens for text in list(TEXTS.values())[:14]]
    together = computer.embed(tokens)
    alone = np.vstack([computer.embed([one]) for one in tokens])
    computer.close()
    assert np.abs(together - alone).max() < 1e-3


def test_a_truncated_text_keeps_the_separator_and_is_reported(f32_engine: LlamaEngine) -> None:
    encoded = f32_engine.encode(TEXTS["beyond the window"])
    assert encoded.truncated
    assert len(encoded.tokens) == MINILM.max_tokens
    assert encoded.tokens[-1] == f32_engine.encode("x").tokens[-1]
    assert not f32_engine.encode(TEXTS["at the window"]).truncated


def test_only_the_start_of_an_enormous_text_is_tokenised_and_the_result_is_the_same(
    f32_engine: LlamaEngine, reference: Any
) -> None:
    text = "a memory of ten words that goes on and on " * 25_000
    encoded = f32_engine.encode(text)
    assert encoded.truncated
    assert encoded.tokens.tolist() == reference.tokenize(text[:20_000])


def test_a_quantised_model_for_a_gpu_gets_no_trial_of_amx_on_the_cpu(
    q8_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "amx_works", lambda *_: pytest.fail("the model was loaded twice"))
    LlamaEngine(EngineOptions(path=q8_file, profile=MINILM, batch_tokens=64, contexts=1, gpu_layers=-1)).close()


@pytest.mark.parametrize("command", ["vectors", "verify", "bench"])
def test_a_command_that_asks_for_an_absent_gpu_ends_with_one_sentence(
    f16_file: Path, tmp_path: Path, command: str
) -> None:
    texts, reference = tmp_path / "texts.jsonl", tmp_path / "reference.jsonl"
    texts.write_text('{"text": "memory"}\n')
    reference.write_text(json.dumps({"text": "memory", "embedding": [1.0] * 384}) + "\n")
    arguments = {"vectors": [texts, tmp_path / "out.jsonl"], "verify": ["--against", reference], "bench": []}[command]
    done = subprocess.run(
        [sys.executable, "-m", "memory_embedder", command, f16_file, *arguments, "--gpu-layers", "-1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "7 layers were to run on a GPU but llama.cpp put 0 there" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


_AFTER_A_FAILED_TRIAL = """
import json, sys
from pathlib import Path
from memory_embedder.engine import backends, llama
from memory_embedder.models.profiles import PROFILES
score = backends._score
backends._score = lambda path: 1_000_000 if "sapphirerapids" in path.name else score(path)
llama.amx_works = lambda *_: False
options = llama.EngineOptions(Path(sys.argv[1]), PROFILES["all-MiniLM-L6-v2"], batch_tokens=256, contexts=1)
engine = llama.LlamaEngine(options)
vector = engine.computer(1).embed([engine.encode(sys.argv[2]).tokens])[0]
print(json.dumps({"kernels": engine.facts.kernels, "vector": vector.tolist()}))
"""


def test_other_kernels_compute_a_quantised_model_where_amx_failed_its_trial(q8_file: Path, reference: Any) -> None:
    """Those with AMX have the best score in this process, whether or not this machine has it."""
    text = TEXTS["rare words"]
    command = [sys.executable, "-c", _AFTER_A_FAILED_TRIAL, str(q8_file), text]  # kernels are chosen once a process
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.splitlines()[-1])
    assert answer["kernels"] != "sapphirerapids"
    assert float(np.array(answer["vector"]) @ reference.embed(text)) >= 0.99


# Kernels are chosen once a process, so each variant has a fork, which needs not import the engine.
_BY_EACH_VARIANT = """
import json, os, sys
from pathlib import Path
from memory_embedder.engine import backends, llama
from memory_embedder.models.profiles import PROFILES
given = json.loads(sys.argv[1])
if given["library"]:
    backends._variants = lambda _directory: {"given": Path(given["library"])}

def compute(wanted):
    backends.choose_variant = lambda _scores, *, avoid_amx: wanted
    vectors = []
    for path in given["paths"]:
        options = llama.EngineOptions(Path(path), PROFILES["all-MiniLM-L6-v2"], batch_tokens=256, contexts=2)
        engine = llama.LlamaEngine(options)
        encoded = [engine.encode(text).tokens for text in given["texts"]]
        alone, together = engine.computer(1), engine.computer(2)
        found = [alone.embed([tokens])[0].tolist() for tokens in encoded]
        found += together.embed(encoded[-1:]).tolist()
        found += together.embed(encoded[:5]).tolist()
        vectors.append(found)
    print(json.dumps({"kernels": engine.facts.kernels, "vectors": vectors}), flush=True)

for name, score in backends._scores(backends._variants(backends._plugin_directory())).items():
    if score:
        print(json.dumps(name), flush=True)
        child = os.fork()
        if child == 0:
            compute(name)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(name)
"""


def by_each_variant(texts: list[str], *paths: Path, library: Path | str = "") -> dict[str, Any]:
    """What each variant that this machine runs computes from the files for the texts of `computed(texts)`.

    `library` is the only variant, if it is given.
    """
    given = {"texts": texts, "paths": [str(path) for path in paths], "library": str(library)}
    command = [sys.executable, "-c", _BY_EACH_VARIANT, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith((b'"', b"{"))]
    names, answers = lines[::2], lines[1::2]
    assert [answer["kernels"] for answer in answers] == names
    return {name: np.array(answer["vectors"]) for name, answer in zip(names, answers, strict=True)}


def computed(texts: list[str]) -> list[str]:
    """The texts that are computed: each with one thread, the last one with two, then the first five at once.

    Two threads wait for each other by spinning, which takes long beside other tests.
    """
    return [*texts, *texts[-1:], *texts[:5]]


def test_each_of_the_kernels_that_this_machine_runs_gives_the_reference(
    f16_file: Path, q8_file: Path, reference: Any
) -> None:
    sentence = "the router was replaced in May and nothing but its backup of the old rules came along"
    # Every rest of a tile's rows, more than one tile, and both sides of what one vector of keys or a short batch holds.
    lengths = (1, 2, 3, 4, 5, 11, 13, 14, 15, 29, 30, 40, 61, 62, 63, 122, 250)
    texts = [" ".join(itertools.islice(itertools.cycle(sentence.split()), length)) for length in lengths]
    references = {text: reference.embed(text) for text in texts}
    expected = np.array([references[text] for text in computed(texts)])
    found = by_each_variant(texts, f16_file, q8_file)
    assert found
    for variant, (f16, q8) in found.items():
        assert ((f16 * expected).sum(axis=1) >= 0.9999).all(), variant
        assert ((q8 * expected).sum(axis=1) >= 0.998).all(), variant
