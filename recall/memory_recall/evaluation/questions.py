"""Reads labelled questions from a queries.jsonl, whose answers are listed in the same file or in a qrels.jsonl."""

import json
from pathlib import Path
from typing import Any

from memory_recall.errors import InvalidInput
from memory_recall.evaluation.evaluate import Question, parse_questions
from memory_recall.evaluation.judgements import parse_judgements

_JUDGED = ("relevant_ids", "grades")


def read_questions(queries: Path, qrels: Path | None = None) -> list[Question]:
    """Read the questions, each with its judgements.

    Raises:
        InvalidInput: a file cannot be read, or a line is malformed; the message names the file or the line.
    """
    lines = _lines(queries)
    if qrels is None:
        return parse_questions(lines)
    judged: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_lines(qrels), 1):
        if line.strip():
            question, found = _judgement(line, number, qrels.name)
            if question in judged:
                raise InvalidInput(
                    f"{qrels.name}, line {number} is about a question of which an earlier line has the judgements.",
                    "Put all memories of a question into one line.",
                )
            judged[question] = found
    return parse_questions(_joined(line, judged) for line in lines)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"The file {path.name} cannot be read ({type(error).__name__}).", "Give a readable UTF-8 file."
        ) from None


def _judgement(line: str, number: int, name: str) -> tuple[str, dict[str, Any]]:
    try:
        given = json.loads(line)
        parse_judgements(given)
        return str(given["query_id"]), {field: given[field] for field in _JUDGED if field in given}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"{name}, line {number} is no judgement.",
            'Give lines such as {"query_id": "q1", "relevant_ids": [17]} or {"query_id": "q1", "grades": {"17": 3}}.',
        ) from None


def _joined(line: str, judged: dict[str, dict[str, Any]]) -> str:
    try:
        given = json.loads(line)
    except ValueError:
        return line  # it is refused, with its number, by the parser of questions
    if isinstance(given, dict) and not any(field in given for field in _JUDGED):
        given |= judged.get(str(given.get("query_id")), {})
    return json.dumps(given)
