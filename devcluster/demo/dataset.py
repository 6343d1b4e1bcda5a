"""Reads and checks the labelled set of the demo, in the files of the evaluation harness, before anything is started.

A set has three files with one JSON object in each line: `corpus.jsonl` (memories), `queries.jsonl` (questions) and
`qrels.jsonl` (which memories answer which question). A cluster takes a minute to start, so all mistakes are found first
and reported together, each by file and line. A report never contains the values of a memory, because a set may be
private.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

REPORTED_PROBLEMS = 20
EVERYONE = "all"  # a question of this `conv` is asked of the whole store
Key = TypeVar("Key")
Line = TypeVar("Line", bound=BaseModel)
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]


class DatasetError(Exception):
    """The labelled set cannot be used; the message lists the problems, one per line."""


class Memory(BaseModel):
    """One line of `corpus.jsonl`; fields that the store does not have are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    id: Annotated[int, Field(gt=0)]
    content: Text
    category: str | None = None
    tags: str | None = None
    expanded_keywords: str | None = None
    importance: Annotated[float, Field(ge=0, le=1)] | None = None
    is_sensitive: bool | Annotated[int, Field(ge=0, le=1)] | None = None
    conv: str | None = None
    user_id: str | None = None
    created_at: str | None = None


class Query(BaseModel):
    """One line of `queries.jsonl`: a question."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    query_id: Text
    text: Text
    stratum: str = "all"
    conv: str | None = None

    @property
    def user(self) -> str | None:
        """User whose memories are searched, or None if the memories of all users are searched."""
        return None if self.conv in {None, EVERYONE} else self.conv


class Judgement(BaseModel):
    """One line of `qrels.jsonl`: the memories that answer one question."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    query_id: Text
    relevant_ids: Annotated[tuple[int, ...], Field(min_length=1, strict=False)]


@dataclass(frozen=True)
class LabelledQuery:
    """A question, and the ids of the memories that answer it."""

    query: Query
    relevant_ids: tuple[int, ...]


@dataclass(frozen=True)
class Dataset:
    """A checked labelled set: ids are unique, every question is judged, and every judgement names a memory."""

    name: str
    memories: tuple[Memory, ...]
    queries: tuple[LabelledQuery, ...]

    @property
    def sensitive(self) -> int:
        """Number of sensitive memories, which must never get a vector."""
        return sum(bool(memory.is_sensitive) for memory in self.memories)

    def corpus_lines(self) -> str:
        """Return the memories as the JSON lines that `memory import` reads."""
        return _lines(memory.model_dump(exclude_none=True) for memory in self.memories)


def evaluation_lines(queries: Iterable[LabelledQuery], *, one_by_one: bool = False) -> str:
    """Return questions with their judgements as the JSON lines that `memory evaluate` reads.

    With `one_by_one`, each question is a stratum of its own, so that `memory evaluate` reports each question's
    measures.
    """
    return _lines(
        {
            "query_id": labelled.query.query_id,
            "text": labelled.query.text,
            "stratum": labelled.query.query_id if one_by_one else labelled.query.stratum,
            "conv": labelled.query.conv or EVERYONE,
            "relevant_ids": list(labelled.relevant_ids),
        }
        for labelled in queries
    )


def load(directory: Path) -> Dataset:
    """Read and check the labelled set in `directory`.

    Raises:
        DatasetError: the set cannot be used; the message lists the problems.
    """
    files = {name: directory / f"{name}.jsonl" for name in ("corpus", "queries", "qrels")}
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing:
        message = (
            f"{directory} is not a labelled set: {', '.join(missing)} missing; a set has corpus, queries and qrels"
        )
        raise DatasetError(message)
    problems: list[str] = []
    memories = _read(files["corpus"], Memory, lambda memory: memory.id, problems)
    queries = _read(files["queries"], Query, lambda query: query.query_id, problems)
    judgements = _read(files["qrels"], Judgement, lambda judgement: judgement.query_id, problems)
    if not problems:
        problems.extend(_broken_references(files, memories, queries, judgements))
    if problems:
        raise DatasetError(_listed(problems))
    return Dataset(
        name=directory.resolve().name,
        memories=tuple(memory for _, memory in memories.values()),
        queries=tuple(LabelledQuery(query, judgements[key][1].relevant_ids) for key, (_, query) in queries.items()),
    )


def _read(
    path: Path, model: type[Line], key_of: Callable[[Line], Key], problems: list[str]
) -> dict[Key, tuple[int, Line]]:
    found: dict[Key, tuple[int, Line]] = {}
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = model.model_validate(orjson.loads(raw))
        except orjson.JSONDecodeError:
            problems.append(f"{path}:{number}: not one JSON object")
            continue
        except ValidationError as error:
            problems.extend(f"{path}:{number}: {_complaint(dict(detail))}" for detail in error.errors())
            continue
        key = key_of(line)
        if key in found:
            problems.append(f"{path}:{number}: {key} was already used on line {found[key][0]}")
        found.setdefault(key, (number, line))
    if not found and not problems:
        problems.append(f"{path}: no line in it")
    return found


def _complaint(detail: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "the line"
    if detail["type"] == "string_pattern_mismatch":
        return f"{field}: must not be blank"
    return f"{field}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _broken_references(
    files: dict[str, Path],
    memories: dict[int, tuple[int, Memory]],
    queries: dict[str, tuple[int, Query]],
    judgements: dict[str, tuple[int, Judgement]],
) -> Iterator[str]:
    for key, (number, _) in queries.items():
        if key not in judgements:
            yield f"{files['queries']}:{number}: {key} has no line in qrels.jsonl"
    for key, (number, judgement) in judgements.items():
        if key not in queries:
            yield f"{files['qrels']}:{number}: {key} has no line in queries.jsonl"
        unknown = [identifier for identifier in judgement.relevant_ids if identifier not in memories]
        if unknown:
            yield f"{files['qrels']}:{number}: {key} points at memories that corpus.jsonl lacks: {unknown}"


def _listed(problems: list[str]) -> str:
    shown = problems[:REPORTED_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return "\n".join(shown)


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(orjson.dumps(row).decode() + "\n" for row in rows)
