"""The lines of a labelled set's files, and its questions as the gate of a swap reads them."""

from pathlib import Path

import orjson


def json_lines(path: Path) -> list[dict[str, object]]:
    """Return the objects of a file with one JSON object a line."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def questions(homelab: Path) -> list[dict[str, object]]:
    """Return the questions of a labelled set with their judgements, as the gate reads them."""
    judged = {str(line["query_id"]): line["relevant_ids"] for line in json_lines(homelab / "qrels.jsonl")}
    return [
        {"query_id": line["query_id"], "text": line["text"], "relevant_ids": judged[str(line["query_id"])]}
        for line in json_lines(homelab / "queries.jsonl")
    ]
