"""Where a wheel of llama.cpp for this machine's processor alone may be found, and where never."""

from pathlib import Path

import pytest

from devcluster.building import wheel
from devcluster.images import project
from devcluster.images.project import EMBEDDER, OPERATOR, Base, build_images, given_files
from devcluster.progress import ConsoleReporter, Reporter, Step
from devcluster.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A cache without wheels beside a checkout in which nothing has been built."""
    checkout = tmp_path / "checkout"
    monkeypatch.setattr(wheel, "_own_directory", lambda: checkout / "build" / "wheels" / "own")
    monkeypatch.setattr(project, "REPOSITORY", checkout)
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


def test_a_wheel_for_this_processor_is_built_once_and_never_in_the_cache(
    settings: Settings, options: list[str]
) -> None:
    first, second = (wheel.build_own_wheel(settings, ConsoleReporter()) for _ in range(2))
    assert first == second
    assert options == ["--this-processor"]
    assert not first.is_relative_to(settings.cache_dir)
    assert wheel.wheel_path(settings) is None


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
def test_an_image_with_the_wheel_for_this_processor_is_kept_in_the_checkout(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "choose_builder", lambda _: _Builder())
    monkeypatch.setattr(project, "base_name", lambda *_: "base")
    monkeypatch.setattr(project, "provide_base", lambda name, *_: Base(name))
    monkeypatch.setattr(project, "key_of", lambda *_, **__: "key")
    cached = settings.cache_dir / "images"
    wheel.build_own_wheel(settings, ConsoleReporter())
    archives = build_images(settings, ConsoleReporter(), this_machine=True)
    assert archives[OPERATOR.name].parent == cached
    assert archives[EMBEDDER.name].parent == project.REPOSITORY / "build" / "images"
    wheel.build_llama_wheel(settings, ConsoleReporter())
    assert build_images(settings, ConsoleReporter(), this_machine=True)[EMBEDDER.name].parent == cached
