"""The record of a first run tells the truth: only a run that found nothing built, and only from its own beginning."""

from pathlib import Path

import pytest

from devcluster import first_run
from devcluster.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a machine on which nothing was built, and whose Go has an empty cache."""
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go"))
    return Settings(cache_dir=tmp_path / "cache", began=1_000.0)


def test_a_run_that_finds_nothing_built_is_recorded_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    first_run.begin(settings)
    monkeypatch.setattr(first_run.time, "time", lambda: 1_090.0)
    done = first_run.complete(settings)
    assert done is not None
    assert done.minutes == 1.5
    assert first_run.read(settings) == done
    assert first_run.complete(settings) is None, "the minutes of a first run are not overwritten"


@pytest.mark.parametrize("built", ["cache/bin/etcd-1", "cache/wheels/llama-1", "cache/images/python-1.tar", "go/00"])
def test_a_run_that_finds_something_built_is_no_first_run(settings: Settings, tmp_path: Path, built: str) -> None:
    path = tmp_path / built
    path.parent.mkdir(parents=True)
    path.touch() if path.suffix else path.mkdir()
    first_run.begin(settings)
    assert first_run.read(settings) is None
    assert first_run.complete(settings) is None


def test_a_later_run_does_not_complete_the_record_of_one_that_failed(settings: Settings) -> None:
    first_run.begin(settings)
    assert first_run.complete(settings.model_copy(update={"began": 5_000.0})) is None
    found = first_run.read(settings)
    assert found is not None
    assert found.minutes is None


def test_a_run_without_make_is_not_recorded(settings: Settings) -> None:
    first_run.begin(settings.model_copy(update={"began": None}))
    assert first_run.read(settings) is None
