"""Who shares a wheel of llama.cpp for this machine's processor alone, and who never gets it."""

from pathlib import Path

import pytest

from devcluster.building import wheel
from devcluster.images import project
from devcluster.images.project import EMBEDDER, OPERATOR, Base, build_images, given_files
from devcluster.progress import ConsoleReporter, Reporter, Step
from devcluster.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An empty cache."""
    return Settings(cache_dir=tmp_path / "cache")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of each build. A build leaves an empty wheel."""
    used: list[str] = []

    def build(directory: Path, _: Reporter, option: str = "--for-tests") -> None:
        used.append(option)
        directory.mkdir(parents=True)
        (directory / "llama_cpp_python-0.0.1-py3-none-any.whl").touch()

    monkeypatch.setattr(wheel, "_build", build)
    return used


@pytest.mark.finding("database F21")
def test_a_wheel_for_this_processor_is_built_once_for_all_clones_that_share_a_cache(
    settings: Settings, options: list[str]
) -> None:
    first, second = (wheel.build_own_wheel(settings, ConsoleReporter()) for _ in range(2))
    assert first == second
    assert options == ["--this-processor"]
    assert first.is_relative_to(settings.cache_dir)


def test_a_wheel_for_this_processor_is_never_taken_for_a_portable_one(settings: Settings, options: list[str]) -> None:
    wheel.build_own_wheel(settings, ConsoleReporter())
    assert wheel.wheel_path(settings) is None
    wheel.build_llama_wheel(settings, ConsoleReporter())
    assert options == ["--this-processor", "--for-tests"]


@pytest.mark.finding("database F21")
def test_the_key_of_a_wheel_for_this_processor_is_that_of_its_features() -> None:
    """Neither the order of the features nor the speed of the moment counts, as both differ on one machine."""
    key = wheel.own_wheel_key("cpu MHz : 2400.0\nflags\t\t: fpu avx2 avx512f\n")
    assert wheel.own_wheel_key("cpu MHz : 1800.1\nflags\t\t: avx512f fpu avx2\n") == key
    assert wheel.own_wheel_key("cpu MHz : 2400.0\nflags\t\t: fpu avx2\n") != key
    assert wheel.own_wheel_key("Features\t: fp asimd\n") != wheel.own_wheel_key("Features\t: fp asimd sve\n")


def test_the_key_of_a_wheel_for_this_processor_is_that_of_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in wheel._INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    monkeypatch.setattr(wheel, "REPOSITORY", tmp_path)
    keys = {wheel.own_wheel_key("flags : avx2")}
    for name in wheel._INPUTS:
        (tmp_path / name).write_text("patched")
        keys.add(wheel.own_wheel_key("flags : avx2"))
    assert len(keys) == len(wheel._INPUTS) + 1


def test_a_portable_wheel_that_is_there_serves_this_machine_as_well(settings: Settings, options: list[str]) -> None:
    portable = wheel.build_llama_wheel(settings, ConsoleReporter())
    assert wheel.build_own_wheel(settings, ConsoleReporter()) == portable
    assert options == ["--for-tests"]


@pytest.mark.usefixtures("options")
def test_only_an_image_for_this_machine_is_given_the_wheel_for_this_processor(settings: Settings) -> None:
    own = wheel.build_own_wheel(settings, ConsoleReporter())
    assert given_files(EMBEDDER, settings, this_machine=True)["wheelhouse"] == own
    assert "wheelhouse" not in given_files(EMBEDDER, settings)


class _Builder:
    """A builder whose images are empty files."""

    name = "test"

    def build(self, _: object, archive: Path, step: Step) -> None:
        step.note("built")
        archive.touch()


@pytest.mark.usefixtures("options")
def test_an_image_with_the_wheel_for_this_processor_is_never_taken_for_a_portable_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "choose_builder", lambda _: _Builder())
    monkeypatch.setattr(project, "base_name", lambda *_: "base")
    monkeypatch.setattr(project, "provide_base", lambda name, *_: Base(name))
    wheel.build_own_wheel(settings, ConsoleReporter())
    own = build_images(settings, ConsoleReporter(), this_machine=True)
    portable = build_images(settings, ConsoleReporter())
    assert own[EMBEDDER.name] != portable[EMBEDDER.name]
    assert own[OPERATOR.name] == portable[OPERATOR.name]
