"""Watching one object: states come as they are sent, and a watch that ends is started again."""

import json
import sys
from pathlib import Path

from devcluster.demo.watch import Watch, documents

TALKER = """
import json, pathlib, sys, time
log = pathlib.Path({log!r})
turn = len(log.read_text()) if log.exists() else 0
log.write_text("x" * (turn + 1))
print(json.dumps({{"turn": turn, "nested": {{"braces": "}}"}}}}, indent=4), flush=True)
if turn:
    time.sleep(600)
"""


def talking(tmp_path: Path) -> Watch:
    return Watch([sys.executable, "-c", TALKER.format(log=str(tmp_path / "turns"))])


def test_a_stream_is_split_at_the_end_of_each_object() -> None:
    states = [{"a": {"b": [1, {"c": "}"}]}}, {"a": 2}]
    lines = "".join(json.dumps(state, indent=4) + "\n" for state in states).splitlines(keepends=True)
    assert list(documents(lines)) == states


def test_an_incomplete_object_is_not_returned() -> None:
    assert list(documents(["{\n", '    "a": 1\n'])) == []


def test_a_watch_that_ends_is_started_again_until_it_is_closed(tmp_path: Path) -> None:
    with talking(tmp_path) as watch:
        first = watch.next(30.0)
        second = watch.next(30.0)
        assert (first or {}).get("turn") == 0
        assert (second or {}).get("turn") == 1
        assert watch.next(0.01) is None
        process = watch._process
    assert process is not None
    assert process.returncode is not None
