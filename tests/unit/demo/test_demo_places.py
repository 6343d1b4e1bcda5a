"""Choosing the place: a machine without a usable driver is no failed cluster."""

import pytest
from rich.console import Console

import devcluster
from devcluster.demo import places
from devcluster.demo.console import DemoConsole
from devcluster.demo.dataset import Dataset
from devcluster.demo.scenario import Record
from devcluster.demo.verdict import Outcome
from devcluster.errors import DevclusterError, UnsupportedError

DATASET = Dataset("set", (), ())


def visit(*, keep: bool = False) -> None:
    console, record = DemoConsole(Console(quiet=True)), Record(Outcome(None, 0))
    places.run_on_cluster(console, DATASET, record, driver=None, keep=keep)


def failing(message: str) -> object:
    def fail(*_: object, **__: object) -> None:
        raise DevclusterError(message, remedy="do something")

    return fail


def test_without_a_usable_driver_the_remedy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devcluster, "choose_driver", failing("no driver can run here"), raising=False)
    with pytest.raises(UnsupportedError, match="no driver can run here") as caught:
        visit()
    assert caught.value.remedy == "do something"


def test_a_cluster_that_does_not_start_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devcluster, "choose_driver", lambda _: None, raising=False)
    monkeypatch.setattr(devcluster, "start", failing("the node did not come up"), raising=False)
    with pytest.raises(DevclusterError, match="did not come up") as caught:
        visit()
    assert not isinstance(caught.value, UnsupportedError)
