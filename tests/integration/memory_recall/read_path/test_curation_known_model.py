"""A known model is recognised by what its server answers in the trial; one that gives few tokens is asked for few."""

import json
import math
from pathlib import Path
from typing import Any

from memory_recall.curation.judging_examples import TRIAL
from memory_recall.curation.known_models import KnownModel, known_models
from tests.integration.conftest import Database
from tests.integration.memory_recall.chat_server import NO, ChatServer, JudgingServer, likely
from tests.integration.memory_recall.fake_embedder import Answer
from tests.integration.memory_recall.read_path.test_curation import fill
from tests.integration.memory_recall.read_path.test_curation_judge import find, in_file, judged, pair_of

_SHIFT = 1.0  # of a token's log-probability, up for restatements and down for others


def answer_of(model: KnownModel, *, restates: bool) -> Answer:
    """What the model answers, but for the token that weighs most, which is likelier for restatements."""
    decisive = max(model.weights, key=lambda token: model.weights[token])
    shift = {decisive: _SHIFT if restates else -_SHIFT}
    return likely(**{token: math.exp(usual + shift.get(token, 0.0)) for token, usual in model.usual.items()})


async def test_a_known_model_is_recognised_whatever_its_name_and_its_tokens_are_read(
    memories: Any, database: Database, tmp_path: Path
) -> None:
    """Both answers say as much of Yes and of No, so without the other tokens the model would not be fit."""
    await fill(memories)
    again, other = await pair_of(memories, "ana"), await pair_of(memories, "ben")
    (model,) = known_models()
    right = {question: answer == "Yes" for question, answer in (one.turn for one in TRIAL)}

    def answering(body: dict[str, Any]) -> Answer:
        asked = body["messages"][-1]["content"]
        return answer_of(model, restates=right.get(asked, "ana's" in asked))

    async with ChatServer() as server:
        server.answering = answering
        file = tmp_path / "proposals.jsonl"
        code, counts, errors = await find(database, file, server)
    assert code == 0, errors
    assert (counts["known_model"], counts["judged"]) == (model.name, 2)
    rows = {(row["id"], row["superseded_by"]): row["score"] for row in map(json.loads, file.read_text().splitlines())}
    assert rows[again] > rows[other]
    assert {decided for _, decided in in_file(file).values()} == {"model"}


async def test_a_server_that_gives_twenty_tokens_at_most_is_asked_for_no_more(memories: Any) -> None:
    await fill(memories)
    await pair_of(memories, "ana")
    async with JudgingServer(NO, limit=20) as limited:
        result = await judged(memories, limited)
    assert (result.judged, result.known_model) == (1, None)
    assert [body["top_logprobs"] for body in limited.bodies] == [20]
