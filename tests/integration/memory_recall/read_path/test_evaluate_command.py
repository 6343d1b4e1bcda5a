"""The reading commands, most of them as processes, against a real database and an embedder on a real socket."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from memory_recall.hnsw.repair import build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.search.fusion import Fusion
from tests.integration.memory_recall.chat_server import ChatServer, said
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.workbench import INDEX
from tests.support.invoked_command import invoke_memory
from tests.support.memory_command import run_memory

MEMORY = Path(sys.executable).with_name("memory")
TEXTS = ["the zigbee dongle hangs", "scrub the zfs pool", "tomatoes like sun", "renew the certificate"]


async def run(environment: dict[str, str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    ended = await run_memory(arguments, environment, given=stdin)
    return ended.status, ended.output.decode(), ended.errors.decode()


async def run_installed(environment: dict[str, str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the installed program, which takes ten times as long to start."""
    process = await asyncio.create_subprocess_exec(
        MEMORY, *arguments, env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(stdin.encode())
    return process.returncode or 0, out.decode(), err.decode()


async def run_here(environment: dict[str, str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run a command in this process, in which a test may have replaced what takes long."""
    done = await asyncio.to_thread(invoke_memory, arguments, environment, given=stdin)
    return done.exit_code, done.stdout, done.stderr


async def fill(bench: Any) -> None:
    async with bench.database.connection() as connection:
        for text in TEXTS:
            vector = [float(number) for number in vector_of(text, 8)]
            await connection.execute(
                "INSERT INTO memories (content, user_id, embedding) VALUES ($1, 'c1', $2::real[]::halfvec)",
                text,
                vector,
            )
    await build_index(DsnText(bench.database.dsn), bench.plan.table, INDEX)


def questions(**changes: Any) -> str:
    lines = [
        {"query_id": str(number), "text": text, "stratum": "exact", "conv": "c1", "relevant_ids": [number], **changes}
        for number, text in enumerate(TEXTS, start=1)
    ]
    return "\n".join(json.dumps(line) for line in lines)


async def test_evaluate_measures_all_modes_on_questions_from_standard_input(bench: Any) -> None:
    """The report is one line of JSON in the form that the demo and the quality gate read."""
    await fill(bench)
    code, out, err = await run_installed(bench.environment(), "evaluate", "--queries", "-", "--json", stdin=questions())
    assert code == 0, err
    report = json.loads(out)
    assert report["recall@10"] == {"lexical": 1.0, "dense": 1.0, "hybrid": 1.0}
    assert report["mrr"] == {"lexical": 1.0, "dense": 1.0, "hybrid": 1.0}
    assert report["queries"] == 4
    assert set(report["strata"]) == {"exact"}


async def test_questions_are_scoped_to_their_user(bench: Any) -> None:
    """A question about another user's memories finds none of these."""
    await fill(bench)
    lines = questions(conv="somebody else")
    code, out, err = await run(bench.environment(), "evaluate", "--modes", "lexical,hybrid", "--json", stdin=lines)
    assert code == 0, err
    assert json.loads(out)["recall@10"] == {"lexical": 0.0, "hybrid": 0.0}


async def test_a_degraded_recall_is_an_error_of_the_evaluation(bench: Any) -> None:
    """Without an index recall degrades to the lexical leg, whose measures are not those of the hybrid mode."""
    code, out, err = await run(bench.environment(), "evaluate", "--json", stdin=questions())
    assert (code, out) == (1, "")
    assert json.loads(err.splitlines()[-1])["reason"] == "RecallDegraded"


async def test_a_malformed_question_is_named_by_its_line(bench: Any) -> None:
    """And nothing of its text is repeated."""
    code, _, err = await run(bench.environment(), "evaluate", stdin=questions() + '\n{"text": "canary"}')
    assert code == 1
    assert "Line 5" in err
    assert "canary" not in err


async def test_ids_that_the_table_cannot_have_are_refused_and_no_measure_is_printed(bench: Any) -> None:
    """Questions about another table would count as not answered, and recall would seem to be 0."""
    await fill(bench)
    named = questions(relevant_ids=["0190f3e0-7d1c-7000-8000-5c2f1e9b0a11"])
    code, out, err = await run(bench.environment(), "evaluate", "--modes", "lexical", "--json", stdin=named)
    assert (code, out, json.loads(err.splitlines()[-1])["reason"]) == (1, "", "InvalidInput")
    assert "'1' names a memory by an id" in err
    assert "of the type integer" in err or "of the type bigint" in err
    many = "\n".join(json.dumps(json.loads(named.splitlines()[0]) | {"query_id": str(one)}) for one in range(30))
    code, out, err = await run(bench.environment(), "tune", "--json", stdin=many)
    assert (code, out, json.loads(err.splitlines()[-1])["reason"]) == (1, "", "InvalidInput")


async def test_the_lexical_mode_needs_no_embedder(bench: Any) -> None:
    """Lexical measurement works where nothing is embedded yet."""
    await fill(bench)
    environment = bench.environment()
    del environment["MEMORY_EMBEDDER_URL"]
    code, out, err = await run(environment, "evaluate", "--modes", "lexical", "--json", stdin=questions())
    assert code == 0, err
    assert json.loads(out)["recall@10"] == {"lexical": 1.0}
    code, _, err = await run(environment, "evaluate", stdin=questions())
    assert code == 1
    assert "MEMORY_EMBEDDER_URL" in err


async def test_recall_prints_what_was_found_and_why(bench: Any) -> None:
    """--explain shows each leg's evidence and time; --json is one line."""
    await fill(bench)
    code, out, err = await run(bench.environment(), "recall", TEXTS[1], "--user", "c1", "--explain", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["memories"][0]["content"] == TEXTS[1]
    assert report["memories"][0]["evidence"]["dense_rank"] == 1
    assert not report["degraded"]
    assert report["milliseconds"]["legs"]["dense"] > 0
    code, out, err = await run(bench.environment(), "recall", TEXTS[1], "--everyone", "--mode", "lexical")
    assert code == 0, err
    assert TEXTS[1] in out


async def test_a_mode_that_does_not_exist_is_refused(bench: Any) -> None:
    """With the modes that do."""
    code, _, err = await run(bench.environment(), "recall", "x", "--everyone", "--mode", "psychic")
    assert code == 1
    assert "hybrid, lexical, dense" in err


async def test_recall_and_evaluate_search_further_words_on_request(bench: Any) -> None:
    """A question in words that no memory has is answered by the model's; without the option nothing is sent."""
    await fill(bench)
    asked = questions(text="radio stick", relevant_ids=[1], conv="c1").splitlines()[0]
    async with ChatServer(said("zigbee, dongle")) as chat:
        environment, expand = bench.environment(), ("--expand", chat.url, "--expand-model", "tiny-chat")
        evaluate = ("evaluate", "--modes", "lexical", "--json")
        code, out, err = await run(environment, *evaluate, stdin=asked)
        assert (code, json.loads(out)["recall@10"], chat.requests) == (0, {"lexical": 0.0}, 0), err
        assert "expanded" not in json.loads(out)
        code, out, err = await run(environment, *evaluate, *expand, stdin=asked)
        assert code == 0, err
        assert (json.loads(out)["recall@10"], json.loads(out)["expanded"]) == ({"lexical": 1.0}, 1)
        code, out, err = await run(environment, *evaluate[:3], *expand, stdin=asked)
        assert "1 questions, 1 expanded" in out, err
        recall = ("recall", "radio stick", "--everyone", "--mode", "lexical", *expand)
        code, out, err = await run(environment, *recall, "--json")
        assert code == 0, err
        assert (json.loads(out)["expansion"], json.loads(out)["memories"][0]["content"]) == ("Expanded", TEXTS[0])
        assert {body["model"] for body in chat.bodies} == {"tiny-chat"}
        heard = chat.requests
        code, out, err = await run(environment, *recall, "--sensitive")
        assert (code, chat.requests) == (0, heard)
        assert "Without further words: SensitiveQuery" in err


async def test_an_expansion_that_gets_no_answer_fails_the_evaluation_and_one_without_words_counts(bench: Any) -> None:
    """What was measured would else be recall without expansion under its name."""
    await fill(bench)
    async with ChatServer((503, {}, b"")) as chat:
        environment = bench.environment()
        evaluate = ("evaluate", "--modes", "lexical", "--expand", chat.url, "--json")
        code, out, err = await run(environment, *evaluate, stdin=questions())
        assert (code, out) == (1, "")
        assert json.loads(err.splitlines()[-1])["reason"] == "ExpansionFailed"
        chat.answer = said("I am sorry, but I cannot help with that request.")
        code, out, err = await run(environment, *evaluate, stdin=questions())
        assert code == 0, err
        assert (json.loads(out)["recall@10"], json.loads(out)["expanded"]) == ({"lexical": 1.0}, 0)


async def test_without_consent_to_its_address_no_language_model_is_asked(bench: Any, tmp_path: Path) -> None:
    """The consent is that which a hosted embedder needs."""
    recall = ("recall", "x", "--everyone", "--json", "--expand", "https://llm.invalid")
    code, _, err = await run(bench.environment(), *recall)
    assert (code, json.loads(err.splitlines()[-1])["reason"]) == (2, "InvalidConfiguration")
    assert "MEMORY_QUERY_EGRESS=allowed" in err
    allowed = bench.environment(MEMORY_QUERY_EGRESS="allowed")
    code, out, err = await run(allowed, *recall)
    assert code == 0, err
    assert json.loads(out)["expansion"] == "ExpansionFailed"
    code, out, err = await run(allowed, *recall, "--expand-key-file", str(tmp_path / "none"))
    assert code == 0, err
    assert json.loads(out)["expansion"] == "ExpansionUnauthorized"


def many(count: int) -> str:
    lines = [
        {"query_id": str(number), "text": TEXTS[number % 4], "conv": "c1", "relevant_ids": [number % 4 + 1]}
        for number in range(count)
    ]
    return "\n".join(json.dumps(line) for line in lines)


async def test_tune_prints_the_gain_with_its_interval(bench: Any) -> None:
    """On questions that every setting answers, nothing is to be gained and the default is kept."""
    await fill(bench)
    code, out, err = await run(bench.environment(), "tune", "--json", stdin=many(32))
    assert code == 0, err
    report = json.loads(out)
    assert (report["questions"], report["recommended"]) == (32, False)
    assert report["gain"]["recall@10"] == {"difference": 0.0, "low": 0.0, "high": 0.0, "p_value": 1.0}


async def test_tune_writes_the_setting_to_the_given_file(bench: Any, few_fusions: None, tmp_path: Path) -> None:
    await fill(bench)
    written = tmp_path / "fusion.json"
    code, out, err = await run_here(bench.environment(), "tune", "--output", str(written), stdin=many(32))
    assert code == 0, err
    assert "95 % interval" in out
    assert Fusion(**json.loads(written.read_text())) == Fusion()


async def test_tune_says_what_each_level_of_relevance_keeps_once_the_usual_cosine_is_found(
    bench: Any, few_fusions: None
) -> None:
    """Every question is the text of its memory, so that all are kept; before, relevance is not known."""
    await fill(bench)
    code, out, err = await run_here(bench.environment(), "tune", "--json", stdin=many(32))
    assert code == 0, err
    assert json.loads(out)["relevance"] == {"unknown": "UsualCosineNotFoundYet"}
    async with bench.database.connection() as connection:
        await connection.execute("UPDATE memory_index_models SET usual_cosine = 0.3")
    code, out, err = await run_here(bench.environment(), "tune", "--json", stdin=many(32))
    assert code == 0, err
    relevance = json.loads(out)["relevance"]
    assert (relevance["relevant_memories"], relevance["prompts"], relevance["recommended"]) == (32, 75, "certain")
    assert {one["kept"] for one in relevance["levels"]} == {1.0}
    in_vain = [one["in_vain"] for one in relevance["levels"]]
    assert in_vain[0] > in_vain[-1]
    code, out, err = await run_here(bench.environment(), "tune", stdin=many(32))
    assert code == 0, err
    assert "Use least_relevance='certain'" in out
    assert "half of them lie below it" in out.replace("\n", " ")


async def test_tune_refuses_too_few_questions_before_the_first_recall(bench: Any) -> None:
    """Its interval would say nothing."""
    code, out, err = await run(bench.environment(), "tune", "--json", stdin=many(29))
    assert (code, out) == (1, "")
    assert "29 labelled questions are too few" in json.loads(err.splitlines()[-1])["message"]
