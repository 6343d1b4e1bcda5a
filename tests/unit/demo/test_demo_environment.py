"""Reading the output of the `memory` program: its JSON answer, or its error."""

from collections.abc import Sequence

import pytest

from devcluster.demo.environment import Completed, DemoError, Speed, last_object, memory


class Scripted:
    driver: str | None = None

    def __init__(self, done: Completed) -> None:
        self.done = done
        self.commands: list[tuple[str, ...]] = []

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
        self.commands.append(tuple(arguments))
        self.stdin = stdin
        return self.done

    def sql(self, statement: str) -> str:
        raise NotImplementedError

    def create_index(self, console: object) -> None:
        raise NotImplementedError

    def backfill_speed(self) -> Speed | None:
        raise NotImplementedError


def test_the_answer_is_the_object_at_the_end_of_the_output() -> None:
    environment = Scripted(Completed(0, 'noise\n{"rows": 1}\n', ""))
    assert memory(environment, "status") == {"rows": 1}
    assert environment.commands == [("memory", "status", "--json")]


def test_an_object_spread_over_lines_is_read_whole() -> None:
    assert last_object('{\n  "a": {\n    "b": 1\n  }\n}\n') == {"a": {"b": 1}}


def test_an_answer_is_found_among_log_lines_by_its_key() -> None:
    log = '{"event": "started"}\n{"rows_per_second": 17.5}\n{"event": "ended"}\n'
    assert last_object(log, having="rows_per_second") == {"rows_per_second": 17.5}


def test_output_without_an_object_is_empty() -> None:
    assert last_object("nothing here") == {}


def test_a_failure_contains_the_last_lines_of_the_output() -> None:
    environment = Scripted(Completed(1, "", "first\nthe embedder is away: start it\n"))
    with pytest.raises(DemoError, match="status 1:\nfirst\nthe embedder is away: start it"):
        memory(environment, "backfill")


def test_waiting_for_the_extension_can_be_accepted() -> None:
    assert memory(Scripted(Completed(3, '{"revision": null}', "")), "migrate", accept=(0, 3)) == {"revision": None}
