"""The example data set in examples/homelab keeps what its README promises.

A newcomer's first impression and the demo's recall figures rest on this set, so its invariants are checked rather than
trusted: the labels refer to rows that exist, no secret row is an answer, paraphrase questions cannot be answered by
shared words, and nothing in it looks like a real address or credential.
"""

import ipaddress
import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

DATASET = Path(__file__).parents[3] / "examples" / "homelab"
CATEGORIES = {"facts", "preferences", "projects", "people", "decisions", "runbooks"}
MEMORY_FIELDS = {
    "id": int,
    "content": str,
    "category": str,
    "tags": str,
    "expanded_keywords": str,
    "importance": float,
    "is_sensitive": bool,
    "created_at": str,
}
MAX_JACCARD = 0.18
# Jaccard alone is lenient with long memories: a short question may be contained in one entirely and still score low.
MAX_SHARED_PART_OF_QUESTION = 0.34

ALLOWED_NETWORKS = [
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
    )
]
ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
HOST_NAME = re.compile(r"\b(?:[a-z0-9*-]+\.)+(?:com|net|org|io|dev|eu|de|uk|local|example)\b", re.IGNORECASE)
ALLOWED_HOST_NAME = re.compile(r"(?:^|\.)example(?:\.(?:com|net|org))?$|\.svc\.cluster\.local$", re.IGNORECASE)
REAL_LOOKING_SECRETS = {
    "AWS key id": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "GitHub or GitLab token": re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-)\w+"),
    "Vault token": re.compile(r"\bhv[sb][.-]\w+"),
    "API key": re.compile(r"\b(?:sk|pk|rk)[-_]\w{8,}"),
    "chat token": re.compile(r"\bxox[abprs]-"),
    "JSON web token": re.compile(r"\beyJ\w{8,}"),
    "private key": re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|AGE-SECRET-KEY-"),
    "long random text": re.compile(r"\b(?=\w*\d)(?=\w*[a-z])\w{28,}\b", re.IGNORECASE),
    "bank account": re.compile(r"\b[A-Z]{2}\d{2}(?: ?\d{4}){3,}"),
}
STOP_WORD_TEXT = """
a about after again all am an and any are as at be because been before being but by can could did do does doing don down
for from had has have having he her here his how i if in into is it its may me more most must my no nor not of off on
once only or our out over own same she should so some such t than that the their them then there these they this those
to too under until up us use very was we were what when where which while who whom why will with would you your
"""
STOP_WORDS = frozenset(STOP_WORD_TEXT.split())
SUFFIXES = ("ations", "ation", "ingly", "edly", "ings", "ness", "ment", "ers", "ies", "ing", "ied", "est", "ed", "er")


@dataclass(frozen=True, slots=True)
class Dataset:
    """The four files, parsed."""

    memories: dict[int, dict[str, Any]]
    lines: int
    queries: list[dict[str, Any]]
    qrels: dict[str, list[int]]
    first_qrels: dict[str, list[int]]
    grades: dict[str, dict[int, int]]
    restatements: list[dict[str, Any]]


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATASET / name).read_text(encoding="utf-8").splitlines()]


def stem(word: str) -> str:
    """A coarse stem, more eager than a real one: it makes two words equal too often rather than too seldom."""
    for suffix in (*SUFFIXES, "es", "ly", "s", "e", "y"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word.removesuffix(suffix)
    return word


def content_stems(text: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", re.sub(r"'(?:s|t|re|ve|ll|d|m)\b", "", text.lower()))
    return {stem(word) for word in words if word not in STOP_WORDS}


def searchable(memory: dict[str, Any]) -> str:
    return f"{memory['content']} {memory['expanded_keywords']}"


def plain(text: str) -> str:
    return " ".join(re.findall(r"[\w-]+", text.lower()))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    rows, judgements = read("corpus.jsonl"), read("qrels.jsonl")
    return Dataset(
        memories={row["id"]: row for row in rows},
        lines=len(rows),
        queries=read("queries.jsonl"),
        qrels={row["query_id"]: row["relevant_ids"] for row in judgements},
        first_qrels={row["query_id"]: row["relevant_ids_1"] for row in judgements if "relevant_ids_1" in row},
        grades={row["query_id"]: {int(one): grade for one, grade in row["grades"].items()} for row in judgements},
        restatements=read("restatements.jsonl"),
    )


def test_memories_are_numbered_from_one_without_gaps(dataset: Dataset) -> None:
    assert dataset.lines == len(dataset.memories), "two rows share an id"
    assert sorted(dataset.memories) == list(range(1, dataset.lines + 1))
    assert dataset.lines >= 420


def test_every_memory_has_exactly_the_documented_fields_and_types(dataset: Dataset) -> None:
    for row in dataset.memories.values():
        assert {name: type(value) for name, value in row.items()} == MEMORY_FIELDS, row["id"]
        assert row["category"] in CATEGORIES, row["id"]
        assert 0 <= row["importance"] <= 1, row["id"]
        assert re.fullmatch(r"[^\s,]+(?:,[^\s,]+)*", row["tags"]), row["id"]
        assert "," not in row["expanded_keywords"], row["id"]


def test_memories_are_8_to_120_words_long(dataset: Dataset) -> None:
    lengths = {row["id"]: len(row["content"].split()) for row in dataset.memories.values()}
    assert {number: length for number, length in lengths.items() if not 8 <= length <= 120} == {}


def test_no_text_occurs_twice(dataset: Dataset) -> None:
    texts = Counter(plain(row["content"]) for row in dataset.memories.values())
    assert [text for text, count in texts.items() if count > 1] == []


def test_memories_span_two_years_in_the_order_of_their_ids(dataset: Dataset) -> None:
    times = [datetime.fromisoformat(dataset.memories[number]["created_at"]) for number in sorted(dataset.memories)]
    assert times == sorted(times)
    assert times[0] >= datetime(2024, 10, 1, tzinfo=UTC)
    assert times[-1] < datetime(2026, 11, 1, tzinfo=UTC)
    assert len({(time.year, time.month) for time in times}) == 25, "a month has no memory"


def test_about_half_of_the_memories_carry_expanded_keywords(dataset: Dataset) -> None:
    with_keywords = sum(bool(row["expanded_keywords"]) for row in dataset.memories.values())
    assert 0.4 <= with_keywords / dataset.lines <= 0.6


def test_sensitive_memories_are_25_to_35_and_carry_no_keywords(dataset: Dataset) -> None:
    sensitive = [row for row in dataset.memories.values() if row["is_sensitive"]]
    assert 25 <= len(sensitive) <= 35
    assert [row["id"] for row in sensitive if row["expanded_keywords"]] == []


def test_at_least_30_memories_restate_or_supersede_an_earlier_one(dataset: Dataset) -> None:
    assert len(dataset.restatements) >= 30
    for pair in dataset.restatements:
        earlier, later = dataset.memories[pair["restates"]], dataset.memories[pair["id"]]
        assert earlier["created_at"] < later["created_at"], pair
        assert pair["kind"] in {"says_again", "replaces"}, pair


def test_there_are_enough_questions_of_each_stratum(dataset: Dataset) -> None:
    strata = Counter(query["stratum"] for query in dataset.queries)
    assert set(strata) == {"exact", "paraphrase", "natural", "multihop"}
    assert min(strata["exact"], strata["multihop"]) >= 50
    assert min(strata["paraphrase"], strata["natural"]) >= 150, "fewer do not tell hybrid recall from meaning alone"


def test_at_most_65_of_100_added_questions_that_are_not_exact_have_one_answer_only(dataset: Dataset) -> None:
    """With one answer to each question, recall says little about what else should have been found."""
    added = [query for query in dataset.queries if query["version"] == 2 and query["stratum"] != "exact"]
    assert added
    assert sum(len(dataset.qrels[query["query_id"]]) == 1 for query in added) <= 0.65 * len(added)


def test_the_first_version_is_its_345_questions_with_the_judgements_of_then_to_which_were_only_added(
    dataset: Dataset,
) -> None:
    first = Counter(query["stratum"] for query in dataset.queries if query["version"] == 1)
    assert first == {"exact": 22, "paraphrase": 150, "natural": 150, "multihop": 23}
    assert set(dataset.first_qrels) == {query["query_id"] for query in dataset.queries if query["version"] == 1}
    assert [one for one, ids in dataset.first_qrels.items() if not set(ids) <= set(dataset.qrels[one])] == []
    assert sum(map(len, dataset.first_qrels.values())) == 398


def test_every_memory_that_was_pooled_has_a_grade_and_those_of_2_or_3_are_relevant(dataset: Dataset) -> None:
    """A pool is the first ten of every ranking, so a question for which fewer were judged was not pooled."""
    for query in dataset.queries:
        grades = dataset.grades[query["query_id"]]
        assert set(grades.values()) <= {0, 1, 2, 3}
        assert sorted(one for one, grade in grades.items() if grade >= 2) == dataset.qrels[query["query_id"]]
        assert len(grades) >= 10 or query["stratum"] == "exact", query["query_id"]


def test_the_judgements_cover_exactly_the_questions_and_name_existing_memories(dataset: Dataset) -> None:
    assert len({query["query_id"] for query in dataset.queries}) == len(dataset.queries)
    assert dataset.qrels == {query["query_id"]: query["relevant_ids"] for query in dataset.queries}
    for query_id, relevant in dataset.qrels.items():
        assert relevant, query_id
        assert relevant == sorted(set(relevant)), query_id
        assert set(relevant) <= set(dataset.memories), query_id


def test_no_sensitive_memory_answers_a_question(dataset: Dataset) -> None:
    sensitive = {number for number, row in dataset.memories.items() if row["is_sensitive"]}
    assert {query_id for query_id, relevant in dataset.qrels.items() if sensitive & set(relevant)} == set()


def test_an_exact_question_is_a_phrase_of_its_one_memory_and_of_no_other(dataset: Dataset) -> None:
    for query in (query for query in dataset.queries if query["stratum"] == "exact"):
        phrase = f" {plain(query['text'])} "
        holders = [number for number, row in dataset.memories.items() if phrase in f" {plain(row['content'])} "]
        assert holders == dataset.qrels[query["query_id"]], query["text"]


def test_a_multihop_question_needs_two_or_more_memories(dataset: Dataset) -> None:
    for query in (query for query in dataset.queries if query["stratum"] == "multihop"):
        assert len(dataset.qrels[query["query_id"]]) >= 2, query["text"]


def test_a_paraphrase_shares_hardly_a_word_with_any_of_its_answers(dataset: Dataset) -> None:
    too_close = []
    for query in (query for query in dataset.queries if query["stratum"] == "paraphrase"):
        asked = content_stems(query["text"])
        for number in dataset.qrels[query["query_id"]]:
            held = content_stems(searchable(dataset.memories[number]))
            shared = asked & held
            if len(shared) / len(asked | held) > MAX_JACCARD or len(shared) / len(asked) > MAX_SHARED_PART_OF_QUESTION:
                too_close.append((query["query_id"], number, sorted(shared), sorted(asked)))
    assert too_close == []


def test_addresses_are_private_or_reserved_for_documentation(dataset: Dataset) -> None:
    for row in dataset.memories.values():
        for address in map(ipaddress.ip_address, ADDRESS.findall(row["content"])):
            assert any(address in network for network in ALLOWED_NETWORKS), (row["id"], str(address))


def test_host_names_and_mail_addresses_are_reserved_for_documentation(dataset: Dataset) -> None:
    for row in dataset.memories.values():
        for name in HOST_NAME.findall(row["content"]):
            assert ALLOWED_HOST_NAME.search(name), (row["id"], name)


@pytest.mark.parametrize("kind", REAL_LOOKING_SECRETS)
def test_nothing_looks_like_a_real_credential(dataset: Dataset, kind: str) -> None:
    pattern = REAL_LOOKING_SECRETS[kind]
    assert [row["id"] for row in dataset.memories.values() if pattern.search(searchable(row))] == []


def test_invented_secrets_say_that_they_are_examples(dataset: Dataset) -> None:
    secret_tags = {"password", "token", "key", "wifi", "unseal", "dsn"}
    for row in dataset.memories.values():
        if row["is_sensitive"] and secret_tags & set(row["tags"].split(",")):
            assert "example" in row["content"].lower(), row["id"]


def test_the_readme_states_the_figures_of_the_set(dataset: Dataset) -> None:
    text = (DATASET / "README.md").read_text(encoding="utf-8")
    lengths = [len(row["content"].split()) for row in dataset.memories.values()]
    strata = Counter(query["stratum"] for query in dataset.queries)
    stated = [
        f"{dataset.lines} memories of one invented person, {len(dataset.queries)} questions",
        f"**{sum(row['is_sensitive'] for row in dataset.memories.values())} sensitive memories**",
        f"**{len(dataset.restatements)} restatements**",
        f"{min(lengths)} to {max(lengths)} words long",
        *(f"| `{stratum}` | {count} |" for stratum, count in strata.items()),
        f"{sum(len(dataset.grades[q['query_id']]) for q in dataset.queries if q['stratum'] != 'exact'):,} pairs",
    ]
    assert [figure for figure in stated if figure not in text] == []


def test_questions_without_an_answer_are_of_the_documented_kinds_and_name_the_memory_that_they_nearly_hit(
    dataset: Dataset,
) -> None:
    found = read("unanswerable.jsonl")
    assert Counter(one["kind"] for one in found) == {"near_miss": 100, "missing": 30, "elsewhere": 20}
    nearly = Counter(one["near_id"] for one in found if one["near_id"] is not None)
    assert set(nearly) <= set(dataset.memories)
    assert max(nearly.values()) <= 2, "they are about many memories"
    assert all(one["near_id"] is not None for one in found if one["kind"] == "near_miss")
    assert all(one["why"] for one in found)
    asked = [plain(one["text"]) for one in (*found, *dataset.queries)]
    assert len(asked) == len(set(asked)), "no question is also one that has an answer"
    assert all(3 <= len(one["text"].split()) <= 25 for one in found)


def test_everyday_prompts_are_300_different_ones_in_three_languages() -> None:
    text = (DATASET.parent / "everyday" / "prompts.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    kinds = {"short": 20, "code": 35, "text": 15, "knowledge": 20, "other": 10}
    for language in ("en", "de", "es"):
        assert Counter(one["kind"] for one in found if one["language"] == language) == kinds
    assert len(found) == len({one["query_id"] for one in found}) == len({one["text"].lower() for one in found}) == 300
