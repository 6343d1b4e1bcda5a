"""The base image of our images is brought in before it is asked for its digest, or named where it cannot be had."""

from pathlib import Path

import pytest

from devcluster.building import versions
from devcluster.building.binaries import go_architecture
from devcluster.building.digests import sha256_of
from devcluster.errors import DevclusterError
from devcluster.images import project
from devcluster.images.bases import BaseImages
from devcluster.images.builders import Buildah, Engine
from devcluster.images.project import Base, provide_base, require_pinned_base
from devcluster.progress import ConsoleReporter, Reporter
from devcluster.release import publishing
from devcluster.release.source import Source
from devcluster.settings import REPOSITORY, Settings

# Knows the image only after it was pulled, and can pull one name only.
ENGINE = """#!/bin/sh
case "$1 $2" in
"image inspect") [ -e "$(dirname "$0")/pulled" ] && echo '["registry.example/python@sha256:aa"]' ;;
"pull --quiet") [ "$3" = registry.example/python:3.13 ] && touch "$(dirname "$0")/pulled" ;;
esac
"""


class Pulling(Engine):
    """A container engine that can pull every image."""

    def has_image(self, name: str) -> bool:
        return bool(name)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A container engine whose storage is empty at first."""
    program = tmp_path / "docker"
    program.write_text(ENGINE, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Engine("docker")


def test_a_configured_base_is_pulled_and_recorded_with_its_digest(engine: Engine, tmp_path: Path) -> None:
    found = provide_base("registry.example/python:3.13", engine, Settings(cache_dir=tmp_path), ConsoleReporter())
    assert found == Base("registry.example/python:3.13", "sha256:aa")


def test_a_base_that_cannot_be_pulled_is_named_with_the_setting(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DevclusterError, match=r"docker has no base image registry\.example/other.*cannot pull") as told:
        provide_base("registry.example/other:1", engine, Settings(cache_dir=tmp_path), ConsoleReporter())
    assert "DEVCLUSTER_BASE_IMAGE" in str(told.value)


@pytest.mark.finding("M12")
@pytest.mark.finding("security L9")
@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ("registry.example/python:3.13", r"base image registry\.example/python:3\.13 is named by its tag alone"),
        ("registry.example/python:3.13@sha256:aa", "is named by its tag alone"),
        ("", f"base image {versions.PUBLIC_PYTHON_IMAGE} is named by its tag alone"),
        (f"registry.example/python:3.13@sha256:{'a' * 64}", "The release goes on"),
    ],
    ids=["a tag", "half a digest", "the public one", "a digest"],
)
def test_a_release_refuses_a_base_image_that_is_named_by_its_tag_alone_before_anything_is_built(
    configured: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(*_: object) -> None:
        raise DevclusterError("The release goes on")

    monkeypatch.setattr(project, "choose_builder", lambda _: Pulling("docker"))
    monkeypatch.setattr(publishing, "read_source", lambda *_: Source(REPOSITORY, "c0ffee", 0, "https://git.example/m"))
    monkeypatch.setattr(publishing, "ensure_programs", go_on)
    with pytest.raises(DevclusterError, match=said):
        publishing.publish(
            "1.2.3",
            "registry.example/m",
            "cosign.key",
            tmp_path,
            architectures=("amd64",),
            cuda=False,
            settings=Settings(cache_dir=tmp_path, base_image=configured),
            reporter=ConsoleReporter(),
        )


def test_the_base_that_devcluster_makes_itself_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its archive is recorded by its digest, and nothing else has its name."""
    monkeypatch.setattr(project, "choose_builder", lambda _: Buildah(tmp_path))
    require_pinned_base(Settings(cache_dir=tmp_path))


@pytest.mark.parametrize("foreign", ["", "riscv64"])
def test_an_image_for_another_processor_is_built_on_its_own_base_and_on_this_machine_s(
    foreign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are imported, this machine's under the name that the build is told; what the image stands on is its own."""

    def ensure_python(_: BaseImages, architecture: str, __: Reporter) -> tuple[str, Path]:
        archive = tmp_path / f"{architecture}.tar"
        archive.write_text(architecture, encoding="utf-8")
        return f"{versions.PYTHON_IMAGE}{'' if architecture == go_architecture() else '-' + architecture}", archive

    imported = list[Path]()
    monkeypatch.setattr(BaseImages, "ensure_python", ensure_python)
    monkeypatch.setattr(Buildah, "import_archive", lambda _, archive: imported.append(archive))
    settings = Settings(cache_dir=tmp_path)
    found = provide_base(versions.PYTHON_IMAGE, Buildah(tmp_path), settings, ConsoleReporter(), foreign)
    own = tmp_path / f"{foreign or go_architecture()}.tar"
    assert found == Base(f"{versions.PYTHON_IMAGE}{foreign and '-' + foreign}", f"sha256:{sha256_of(own)}")
    assert {path.stem for path in imported} == {go_architecture(), *filter(None, [foreign])}
