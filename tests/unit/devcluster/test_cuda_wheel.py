"""Where the wheel with the CUDA backend is kept, how its build goes on after an interruption, and what it is made of.

Compiling takes an hour and more, so a script of a few lines stands in for the compiler here.
"""

import re
from pathlib import Path

import pytest

from devcluster.building import cuda_wheel
from devcluster.building.wheel import wheel_key
from devcluster.errors import CommandError
from devcluster.images.project import CUDA_EMBEDDER, EMBEDDER, given_files
from devcluster.progress import ConsoleReporter
from devcluster.settings import REPOSITORY, Settings

# Leaves an object and fails at first; goes on from that object the second time.
INTERRUPTED = """#!/bin/sh
set -eu
test -e "$BUILD_DIR/object" || { mkdir -p "$BUILD_DIR"; echo "$CUDA_ARCHITECTURES" > "$BUILD_DIR/object"; exit 1; }
mkdir "$2"
cp "$BUILD_DIR/object" "$2/llama_cpp_python-0.0.1-1cuda-py3-none-any.whl"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path, cuda_architectures="75-real")


def test_an_interrupted_build_goes_on_where_it_was_and_leaves_the_wheel_alone(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "recipe"
    script.write_text(INTERRUPTED)
    script.chmod(0o755)
    monkeypatch.setattr(cuda_wheel, "RECIPE", str(script))
    monkeypatch.setattr(cuda_wheel, "cuda_wheel_key", lambda _: "key")
    monkeypatch.setattr(cuda_wheel, "build_llama_wheel", lambda *_: tmp_path / "cpu.whl")
    with pytest.raises(CommandError):
        cuda_wheel.build_cuda_wheel(settings, ConsoleReporter())
    assert cuda_wheel.cuda_wheel_path(settings) is None
    built = cuda_wheel.build_cuda_wheel(settings, ConsoleReporter())
    assert built.read_text() == "75-real\n"
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == {".llama-cuda-key.lock", "llama-cuda-key"}


def test_each_choice_of_architectures_has_a_wheel_of_its_own(settings: Settings) -> None:
    other = settings.model_copy(update={"cuda_architectures": "90-real"})
    assert cuda_wheel.cuda_wheel_key(settings) != cuda_wheel.cuda_wheel_key(other)


def test_each_image_of_the_embedder_is_given_its_own_wheel(settings: Settings, tmp_path: Path) -> None:
    places = {
        EMBEDDER: tmp_path / "wheels" / f"llama-{wheel_key()}",
        CUDA_EMBEDDER: tmp_path / "wheels" / f"llama-cuda-{cuda_wheel.cuda_wheel_key(settings)}",
    }
    for place in places.values():
        place.mkdir(parents=True)
        (place / "llama_cpp_python-0.0.1-py3-none-any.whl").touch()
    for image, place in places.items():
        assert given_files(image, settings)["wheelhouse"].parent == place


def test_the_same_architectures_are_compiled_for_wherever_nobody_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_ARCHITECTURES", raising=False)
    default = Settings().cuda_architectures
    assert f'ARG CUDA_ARCHITECTURES="{default}"' in (REPOSITORY / "Dockerfile.embedder").read_text()
    assert f"${{CUDA_ARCHITECTURES:-{default}}}" in (REPOSITORY / cuda_wheel.RECIPE).read_text()


def test_the_backend_is_compiled_with_the_runtime_that_the_image_has() -> None:
    """Compiler and runtime library are of one release, whose major version is the one that the named driver is for."""
    locks = "".join((REPOSITORY / "requirements" / f"{name}.txt").read_text() for name in ("cuda", "cuda-build"))
    versions = re.findall(r"^nvidia-(?:cuda-(?:nvcc|crt|runtime|nvrtc)|nvvm)==(\S+)", locks, flags=re.MULTILINE)
    assert len(versions) >= 5
    assert len(set(versions)) == 1
    assert versions[0].startswith("13.")
    assert "**The least driver is 580**" in (REPOSITORY / "docs" / "embedder.md").read_text()
