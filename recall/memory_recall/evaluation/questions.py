"""Reads labelled questions from a queries.jsonl, whose answers are listed in the same file or in a qrels.jsonl."""

import json
from pathlib import Path

from memory_recall.errors import InvalidInput
from memory_recall.evaluation.evaluate import Question, parse_questions


def read_questions(queries: Path, qrels: Path | None = None) -> list[Question]:
    """Read the questions, each with the ids of the memories that answer it.

    Raises:
        InvalidInput: a file cannot be read, or a line is malformed; the message names the file or the line.
    """
    lines = _lines(queries)
    if qrels is None:
        return parse_questions(lines)
    judged = dict(_judgement(line, number, qrels.name) for number, line in enumerate(_lines(qrels), 1) if line.strip())
    return parse_questions(_joined(line, judged) for line in lines)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"The file {path.name} cannot be read ({type(error).__name__}).", "Give a readable UTF-8 file."
        ) from None


def _judgement(line: str, number: int, name: str) -> tuple[str, list[int]]:
    try:
        given = json.loads(line)
        return str(given["query_id"]), list(given["relevant_ids"])
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{name}, line {number} is no judgement.", 'Give lines such as {"query_id": "q1", "relevant_ids": [17]}.'
        ) from None


def _joined(line: str, judged: dict[str, list[int]]) -> str:
    try:
        given = json.loads(line)
    except ValueError:
        return line  # it is refused, with its number, by the parser of questions
    if isinstance(given, dict) and "relevant_ids" not in given:
        given["relevant_ids"] = judged.get(str(given.get("query_id")), [])
    return json.dumps(given)
