"""What the page shows of a recall and of the index."""

from dataclasses import replace

import pytest

from memory_recall.contrib.page.index_state import shown_facts
from memory_recall.contrib.page.trying import NamedLevel, TriedLeg, measured, named_levels, tried
from memory_recall.hnsw.definition import IndexFacts, IndexProgress
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.requirements.faults import Fault
from memory_recall.search.relevance import RelevanceBasis, RelevanceScale
from memory_recall.search.result import WHY_DEGRADED, Degraded, Evidence, RecalledMemory, RecallResult, Timings
from memory_recall.status import NO_INDEX, NO_ROWS, DatabaseFacts, RowCounts
from tests.unit.memory_recall.fake_recall import memory

SCALE = RelevanceScale(most_dense=0.9, most_lexical=3.0, max_lexical_score=8.0, usual_cosine=0.3)
FOUND = Evidence(2, 1.5, 1, 0.42)
EMPTY = DatabaseFacts(
    server_version="18.0", in_recovery=False, database_owner="owner", extension_version=None,
    extension_available=None, extension_schema=None, schema_revision=None, table_exists=False,
    embedding_dimensions=None, rows=NO_ROWS, index=NO_INDEX, active_model=None, next_model=None,
)  # fmt: skip


def result(*memories: RecalledMemory, basis: RelevanceBasis, scale: RelevanceScale | None = None) -> RecallResult:
    return RecallResult(memories, "hybrid", None, Timings(3.0), relevance_basis=basis, relevance_scale=scale)


def facts(state: DatabaseFacts) -> dict[str, str]:
    return {fact.name: fact.value for fact in shown_facts(state)}


@pytest.mark.parametrize(
    ("evidence", "scale", "said"),
    [
        (FOUND, SCALE, "Its cosine is 0.420 and the best 0.900, where 0.300 is usual for a prompt that no memory fits"),
        (FOUND, SCALE, "the score of its words is 1.50 and the best 3.00, where 8.00 is a full match."),
        (replace(FOUND, dense_score=None), SCALE, "Words alone decided, since the memory has no vector: "),
        (FOUND, replace(SCALE, most_dense=None), "Words alone decided, since the recall was by words alone: "),
    ],
    ids=["cosine", "words", "no vector", "no dense leg"],
)
def test_a_sentence_says_what_a_relevance_was_measured_by(evidence: Evidence, scale: RelevanceScale, said: str) -> None:
    assert said in measured(evidence, scale)


def test_the_levels_are_those_of_a_query() -> None:
    assert named_levels() == (
        NamedLevel("everything", 0.0, 0.0), NamedLevel("likely", 0.15, 0.1), NamedLevel("certain", 0.8, 0.8)
    )  # fmt: skip


def test_each_memory_has_its_place_its_relevance_and_its_legs() -> None:
    first = replace(memory(7, "one"), relevance=0.25, evidence=replace(FOUND, graph_score=0.5))
    other = replace(memory(8, "two", superseded_by=7), relevance=0.5, evidence=replace(FOUND, dense_score=None))
    shown = tried(result(first, other, basis=RelevanceBasis.MEANING_AND_WORDS, scale=SCALE))
    assert [(one.place, one.id, one.relevance, one.by_words) for one in shown.memories] == [
        (1, "7", 0.25, False), (2, "8", 0.5, True)
    ]  # fmt: skip
    assert shown.memories[0].legs == (TriedLeg("lexical", 2, 1.5), TriedLeg("dense", 1, 0.42))
    assert [one.graph_score for one in shown.memories] == [0.5, None]
    assert "superseded by 7" in shown.memories[1].about
    assert (shown.relevance_known, shown.notes) == (True, ())


def test_a_recall_whose_relevance_is_not_known_says_why() -> None:
    unknown = result(memory(1, "one"), basis=RelevanceBasis.NOT_FOUND_YET)
    shown = tried(replace(unknown, reason=Degraded.CIRCUIT_OPEN))
    assert shown.notes == (
        f"Words alone answered, without meaning: EmbedderCircuitOpen: {WHY_DEGRADED[Degraded.CIRCUIT_OPEN]}.",
        "Nothing is held back: the usual cosine of this table is not found yet; backfill and sync find it.",
    )
    assert (shown.relevance_known, shown.memories[0].measured) == (False, "")


def test_the_state_of_a_new_database_says_what_there_is_to_do() -> None:
    found = facts(EMPTY)
    assert (found["Memories"], found["Active model"], found["pgvector"]) == ("0", "none", "not installed")
    assert found["Schema"] == "not migrated; memory migrate does it"
    assert found["Vector index"] == "none; memory index build makes it"
    assert found["Usual cosine"] == "not found yet; backfill and sync find it"


def test_the_state_of_a_running_index_names_its_counts_its_model_and_what_is_wrong() -> None:
    building = IndexFacts("hnsw", exists=True, valid=False, progress=IndexProgress("loading tuples", 0.25), ours=True)
    state = replace(
        EMPTY,
        rows=RowCounts(total=12_345, embedded=12_000, pending=300, sensitive=40, quarantined=5),
        index=building,
        active_model=RecordedModel(1, "tiny", None, 8, usual_cosine=0.25),
        faults=(Fault("A column is missing.", "Add it."),),
    )
    found = facts(state)
    assert (found["Memories"], found["Embedded"], found["Quarantined"]) == ("12,345", "12,000", "5")
    assert (found["Active model"], found["Usual cosine"]) == ("tiny, 8 dimensions", "0.250")
    assert found["Vector index"] == "being built: loading tuples, 25%"
    assert found["To be mended"] == "A column is missing. Add it."
    assert facts(replace(state, index=replace(building, valid=True, progress=None)))["Vector index"] == "hnsw, valid"
