"""Reads and checks a labelled set: corpus, questions and relevance judgements.

A set with mistakes gives plausible but meaningless numbers. Therefore every kind of mistake that the three files can
contain is looked for, and each is reported by file and line. Sensitive memories are left out, because they are never
embedded and dense retrievers cannot find them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory_recall.evaluation.judgements import Judgements, parse_judgements
from memory_recall.schema.columns.keys import MemoryId

EVERYONE = "all"


class DatasetError(Exception):
    """A file of the labelled set contains a mistake; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One document of the corpus.

    `scope` is the user whose memory it is, and `created_at` the time of its creation, with a time zone; each is None if
    the corpus does not say it.
    """

    id: int
    content: str
    category: str = "facts"
    tags: str = ""
    expanded_keywords: str = ""
    importance: float = 0.5
    scope: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """One question; `scope` is the user whose memories are searched, or None for the whole corpus.

    `relevant` holds the ids of the memories that answer the question, and `grades` the grades of all memories that were
    judged; it is empty if the judgements are binary. `overlap` is the label that the set's file gives for how many of
    the question's words the answer contains, or "" if the file gives no label.
    """

    query_id: str
    text: str
    stratum: str
    scope: str | None
    relevant: frozenset[MemoryId]
    overlap: str = ""
    grades: Mapping[MemoryId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A labelled set that has been checked; `digest` is the SHA-256 of the set's three files."""

    name: str
    memories: tuple[Memory, ...]
    queries: tuple[Query, ...]
    sensitive_left_out: int
    digest: str

    @property
    def strata(self) -> list[str]:
        """The names of the set's strata, sorted."""
        return sorted({query.stratum for query in self.queries})


def load_dataset(directory: Path, *, judgements: str = "qrels.jsonl") -> Dataset:
    """Read and check `corpus.jsonl`, `queries.jsonl` and the file of relevance judgements.

    Raises:
        DatasetError: a file is missing or malformed, or the three files contradict each other.
    """
    memories, left_out = read_corpus(directory / "corpus.jsonl")
    relevant = _judgements(directory / judgements, {memory.id for memory in memories}, left_out)
    queries = _queries(directory / "queries.jsonl", relevant, {memory.id: memory.scope for memory in memories})
    digest = hashlib.sha256()
    for name in ("corpus.jsonl", "queries.jsonl", judgements):
        digest.update((directory / name).read_bytes())
    return Dataset(directory.name, tuple(memories), tuple(queries), len(left_out), digest.hexdigest())


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path.name} cannot be read ({type(error).__name__}).") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            record = json.loads(line)
        except ValueError:
            raise DatasetError(f"{where}: not JSON.") from None
        if not isinstance(record, dict):
            raise DatasetError(f"{where}: not an object.")
        yield where, record


def _text(record: dict[str, Any], field: str, where: str, default: str | None = None) -> str:
    value = record.get(field, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise DatasetError(f"{where}: `{field}` must be a text{'' if default is not None else ' that is not empty'}.")
    return value


def _time(record: dict[str, Any], field: str, where: str) -> datetime | None:
    """Return the time of a field, None if it is absent; a time without a zone is UTC, as SQLite writes it."""
    value = record.get(field)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise DatasetError(f"{where}: `{field}` must be an ISO 8601 time.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _scope(record: dict[str, Any]) -> str | None:
    scope = record.get("user_id", record.get("conv"))
    return None if scope in {None, "", EVERYONE} else str(scope)


def read_corpus(path: Path) -> tuple[list[Memory], set[int]]:
    """Read and check a `corpus.jsonl`; return its memories and the ids of the sensitive ones, which are left out.

    Raises:
        DatasetError: the file is missing or malformed.
    """
    memories: list[Memory] = []
    seen: set[int] = set()
    sensitive: set[int] = set()
    for where, record in _lines(path):
        identity = record.get("id")
        if type(identity) is not int:
            raise DatasetError(f"{where}: `id` must be an integer.")
        if identity in seen:
            raise DatasetError(f"{where}: id {identity} was used before.")
        seen.add(identity)
        content = _text(record, "content", where)
        importance = record.get("importance", 0.5)
        if not isinstance(importance, int | float) or not 0 <= importance <= 1:
            raise DatasetError(f"{where}: `importance` must be a number from 0 to 1.")
        if record.get("is_sensitive"):
            sensitive.add(identity)
            continue
        texts = {name: _text(record, name, where, "") for name in ("category", "tags", "expanded_keywords")}
        created = _time(record, "created_at", where)
        memories.append(
            Memory(identity, content, **texts, importance=float(importance), scope=_scope(record), created_at=created)
        )
    if not memories:
        raise DatasetError(f"{path.name} holds no memory that may be searched.")
    return memories, sensitive


def _judgements(path: Path, known: set[int], sensitive: set[int]) -> dict[str, Judgements]:
    judged: dict[str, Judgements] = {}
    for where, record in _lines(path):
        identity = _text(record, "query_id", where)
        if identity in judged:
            raise DatasetError(f"{where}: query {identity!r} was judged before.")
        try:
            found = parse_judgements(record)
        except ValueError as error:
            raise DatasetError(f"{where}: {error}.") from None
        hidden = sorted(sensitive & found.judged)
        if hidden:
            raise DatasetError(f"{where}: memory {hidden[0]} is sensitive, so no question may ask for it.")
        missing = sorted(found.judged - known, key=str)
        if missing:
            raise DatasetError(f"{where}: there is no memory {missing[0]} in the corpus.")
        judged[identity] = found
    return judged


def _queries(path: Path, judged: dict[str, Judgements], scopes: Mapping[MemoryId, str | None]) -> list[Query]:
    queries: list[Query] = []
    seen: set[str] = set()
    for where, record in _lines(path):
        identity = _text(record, "query_id", where)
        if identity in seen:
            raise DatasetError(f"{where}: query {identity!r} was used before.")
        seen.add(identity)
        if identity not in judged:
            raise DatasetError(f"{where}: query {identity!r} has no judgement.")
        scope = _scope(record)
        outside = (one for one in judged[identity].judged if scope is not None and scopes[one] != scope)
        foreign = sorted(outside, key=str)
        if foreign:
            raise DatasetError(f"{where}: memory {foreign[0]} lies outside the query's own scope {scope!r}.")
        text, stratum = _text(record, "text", where), _text(record, "stratum", where, EVERYONE)
        overlap = _text(record, "lex_bin", where, "")
        found = judged[identity]
        queries.append(Query(identity, text, stratum, scope, found.relevant, overlap, found.grades))
    missing = sorted(set(judged) - seen)
    if missing:
        raise DatasetError(f"{path.name}: judged query {missing[0]!r} is missing.")
    if not queries:
        raise DatasetError(f"{path.name} holds no question.")
    return queries
