"""Components start in order, a failing one is named with its log, and one that dies later is started again."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.node import supervisor
from devcluster.node.components import Component, Probe
from devcluster.node.events import Event, EventLog, read
from devcluster.node.supervisor import ComponentFailedError, Supervisor


def task(name: str, code: str, *needs: str) -> Component:
    return Component(name, (sys.executable, "-c", code), Probe("exit"), needs)


def dying(name: str, socket: Path, *needs: str) -> Component:
    """A service that ends once it has been found ready, and then whenever it is started again."""
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(socket)!r}); s.listen(); s.accept()"
    return Component(name, (sys.executable, "-c", code), Probe("socket", str(socket)), needs)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[str, list[Event]]]:
    """Supervise until failure; returns the failure and the events."""

    def supervise(*components: Component, seconds: float = 30.0) -> tuple[str, list[Event]]:
        events = EventLog(tmp_path / "events.jsonl")
        watching = Supervisor(components, lambda name: tmp_path / f"{name}.log", events, seconds)
        with pytest.raises(ComponentFailedError) as caught:
            watching.run()
        return str(caught.value), read(tmp_path / "events.jsonl", 0)[0]

    return supervise


def test_a_component_waits_for_what_it_needs(run: Callable[..., tuple[str, list[Event]]], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = task("first", f"import pathlib; pathlib.Path({str(mark)!r}).touch()")
    second = task("second", f"import pathlib, sys; sys.exit(40 + pathlib.Path({str(mark)!r}).exists())", "first")
    failure, events = run(second, first)
    assert "second ended with status 41" in failure
    assert [(event.kind, event.component) for event in events] == [
        ("started", "first"),
        ("ready", "first"),
        ("started", "second"),
    ]


def test_an_error_has_the_end_of_the_failed_components_log(run: Callable[..., tuple[str, list[Event]]]) -> None:
    failure, _ = run(task("broken", "import sys; print('the disk is full'); sys.exit(3)"))
    assert "broken ended with status 3" in failure
    assert "the disk is full" in failure


def test_a_component_that_is_never_ready_fails_at_its_deadline(
    run: Callable[..., tuple[str, list[Event]]], tmp_path: Path
) -> None:
    sleeper = Component("sleeper", ("/bin/sleep", "60"), Probe("socket", str(tmp_path / "never")))
    failure, _ = run(sleeper, seconds=0.3)
    assert "sleeper was not ready after" in failure


def test_a_program_that_does_not_exist_is_named(run: Callable[..., tuple[str, list[Event]]]) -> None:
    failure, _ = run(Component("ghost", ("/no/such/program",), Probe("exit")))
    assert "ghost cannot be started" in failure


def test_a_service_that_keeps_dying_is_restarted_a_few_times_and_then_given_up(
    run: Callable[..., tuple[str, list[Event]]], tmp_path: Path
) -> None:
    failure, events = run(dying("flaky", tmp_path / "socket"))
    assert "flaky ended with status 1" in failure
    assert "Address already in use" in failure
    assert [event.kind for event in events].count("restarted") == 3


def test_the_node_is_up_when_everything_is_ready(run: Callable[..., tuple[str, list[Event]]], tmp_path: Path) -> None:
    first, second = task("first", "pass"), task("second", "pass", "first")
    _, events = run(first, second, dying("service", tmp_path / "socket", "second"))
    kinds = [event.kind for event in events]
    ready = [index for index, event in enumerate(events) if event.kind == "ready"]
    assert len(ready) == 3
    assert kinds.count("up") == 1
    assert kinds.index("up") > max(ready)


def test_a_service_that_dies_now_and_then_is_restarted_every_time(
    run: Callable[..., tuple[str, list[Event]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here every death is longer ago than a minute; the program is gone after its sixth start."""
    monkeypatch.setattr(supervisor, "_RESTARTS_SECONDS", 0.0)
    socket, program = tmp_path / "socket", tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport os, pathlib, socket\n"
        f"here, starts = pathlib.Path({str(program)!r}), pathlib.Path({str(tmp_path / 'starts')!r})\n"
        "starts.open('a').write('.')\n"
        f"server = socket.socket(socket.AF_UNIX); pathlib.Path({str(socket)!r}).unlink(missing_ok=True)\n"
        f"server.bind({str(socket)!r}); server.listen()\n"
        "if len(starts.read_text()) == 6: here.unlink()\n"
        "if len(starts.read_text()) == 1: server.accept()\n"
    )
    program.chmod(0o755)
    failure, events = run(Component("flaky", (str(program),), Probe("socket", str(socket))))
    assert "flaky cannot be started" in failure
    assert [event.kind for event in events].count("died") == 6
