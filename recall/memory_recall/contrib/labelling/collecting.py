"""Makes questions from the lines of a file, which holds either written questions or the logged queries of an API.

A logged query is the body of a recall request with the user who sent it, one JSON object a line, as an API can write it
down: {"context": "...", "expanded_query": "...", "user_id": "ana", "is_sensitive": false}. Only `context` and `user_id`
are required. A query is left out unless its `is_sensitive` is false or missing. As a recall does, a question takes the
first 50,000 characters of both texts together.
"""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from memory_recall.contrib.labelling.labels import Asked, Labels, QuestionText
from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.query import cleaned

_EVERYBODY = (None, "", "all")
Line = TypeVar("Line", bound=BaseModel)


def _as_text(value: object) -> object:
    return str(value) if type(value) is int else value


def _asking(text: str) -> str:
    if not cleaned(text):
        raise PydanticCustomError("blank", "Input should have a word")
    return text


class ImportedQuestion(BaseModel):
    """A line of a file of questions, in the form of `memory evaluate`. Only the text is required."""

    model_config = ConfigDict(strict=True)

    text: QuestionText
    query_id: Annotated[str | None, BeforeValidator(_as_text)] = None
    stratum: str | None = None
    conv: Annotated[str | None, BeforeValidator(_as_text)] = None
    relevant_ids: list[MemoryId] = []


class LoggedQuery(BaseModel):
    """A line of a log of queries: the body of a recall request, and the user who sent it."""

    model_config = ConfigDict(strict=True)

    context: Annotated[str, AfterValidator(_asking)]
    expanded_query: str = ""
    user_id: Annotated[str, AfterValidator(_asking)] | None  # None where the table has no column of owners
    is_sensitive: Any = False


@dataclass(frozen=True, slots=True)
class Collected:
    """New questions, and the numbers of lines that were left out because they are sensitive or repeat a question."""

    questions: list[Asked]
    sensitive: int = 0
    repeated: int = 0


def imported(labels: Labels, lines: Iterable[str], *, stratum: str) -> Collected:
    """Make questions from lines of written questions. A line without a stratum of its own gets `stratum`.

    Raises:
        InvalidInput: a line is malformed; the message names its number and the field, and quotes nothing.
    """
    found = []
    for line in _parsed(lines, ImportedQuestion):
        conv = None if line.conv in _EVERYBODY else line.conv
        question = Asked.with_hashed_id(line.text.strip(), stratum=line.stratum or stratum, conv=conv)
        found.append(
            question.model_copy(update={"query_id": line.query_id or question.query_id, "known": line.relevant_ids})
        )
    return _new(labels, found)


def logged(labels: Labels, lines: Iterable[str], *, stratum: str, sample: int, seed: int) -> Collected:
    """Draw at most `sample` questions at random from logged queries. A query that a user has sent twice counts once.

    Raises:
        InvalidInput: a line is malformed; the message names its number and the field, and quotes nothing.
    """
    queries = list(_parsed(lines, LoggedQuery))
    public = [query for query in queries if query.is_sensitive is False]
    asked = [
        Asked.with_hashed_id(cleaned(f"{query.context} {query.expanded_query}"), stratum=stratum, conv=query.user_id)
        for query in public
    ]
    fresh = _new(labels, asked)
    drawn = random.Random(seed).sample(fresh.questions, min(sample, len(fresh.questions)))  # noqa: S311  (repeatable)
    return Collected(drawn, sensitive=len(queries) - len(public), repeated=fresh.repeated)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file.

    Raises:
        InvalidInput: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").split("\n")  # splitlines would also split inside JSON strings
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read ({type(error).__name__}).", "Give a readable UTF-8 file.") from None


def _new(labels: Labels, found: list[Asked]) -> Collected:
    """Return those questions that `labels` lacks; refuse two different questions with the same id."""
    taken = {event.query_id: event for event in labels.events if isinstance(event, Asked)}
    fresh: list[Asked] = []
    for question in found:
        before = taken.setdefault(question.query_id, question)
        if before is question:
            fresh.append(question)
        elif before.text != question.text:
            raise InvalidInput(
                f"There are two questions with the query_id {question.query_id!r}.", "Give every question its own."
            )
    return Collected(fresh, repeated=len(found) - len(fresh))


def _parsed(lines: Iterable[str], kind: type[Line]) -> Iterator[Line]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield kind.model_validate(json.loads(line))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the object"
            raise InvalidInput(f"Line {number}, {where}: {problem['msg']}.", "Correct this line.") from None
        except ValueError:
            raise InvalidInput(f"Line {number} is not JSON.", "Give one JSON object a line.") from None
