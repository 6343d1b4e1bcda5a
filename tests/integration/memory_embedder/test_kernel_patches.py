"""The patches fit the pinned release of llama.cpp, and a CPU backend without them serves as well."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devcluster.settings import REPOSITORY
from tests.integration.memory_embedder.test_golden import TEXTS, by_each_variant, computed

SERVICE = REPOSITORY / "embedder-service"
KERNELS = sorted((SERVICE / "kernels").glob("*.patch"))
PACKAGING = sorted((SERVICE / "packaging").glob("*.patch"))


def apply(tree: Path, patches: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SERVICE / "apply-patches", tree, *patches], capture_output=True, text=True, check=False)


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def context_of(patch: Path) -> tuple[str, str]:
    """The file that a patch changes last, and an unchanged line of the hunk there."""
    name, context = "", ""
    for line in patch.read_text().partition("\ndiff --git")[2].splitlines():
        if line.startswith("--- a/"):
            name = line.removeprefix("--- a/")
        elif line.startswith(" ") and line.strip():
            context = line[1:]
    return name, context


@pytest.fixture
def released(for_tests: Path, tmp_path: Path) -> Path:
    """A copy of the files that the patches change, as they were released."""
    return Path(shutil.copytree(for_tests / "source", tmp_path / "source"))


def test_every_hunk_fits_the_pinned_release(released: Path) -> None:
    before = contents(released)
    done = apply(released, [*PACKAGING, *KERNELS])
    assert (done.returncode, done.stderr) == (0, "")
    after = contents(released)
    assert all(after[name] != text for name, text in before.items())
    assert {Path(name).suffix for name in after.keys() - before.keys()} == {".h"}


@pytest.mark.parametrize("left_out", KERNELS, ids=lambda path: path.stem)
def test_any_kernel_can_be_left_out(released: Path, left_out: Path) -> None:
    assert apply(released, [patch for patch in KERNELS if patch != left_out]).returncode == 0


@pytest.mark.finding("M12")
@pytest.mark.parametrize("patch", [*PACKAGING, *KERNELS], ids=lambda path: path.stem)
def test_a_source_that_has_changed_under_a_hunk_stops_the_script_and_stays_as_it_is(
    released: Path, patch: Path
) -> None:
    changed, context = context_of(patch)
    source = (released / changed).read_text()
    assert context in source
    (released / changed).write_text(source.replace(context, context + " // changed"))
    before = contents(released)
    done = apply(released, [patch])
    assert done.returncode == 1
    assert patch.name in done.stderr
    assert contents(released) == before


def test_a_patch_that_is_already_applied_does_not_fit(released: Path) -> None:
    assert apply(released, KERNELS).returncode == 0
    assert apply(released, KERNELS[:1]).returncode == 1


@pytest.mark.parametrize("patch", KERNELS, ids=lambda path: path.stem)
def test_a_kernels_patch_gives_its_rationale(patch: Path) -> None:
    header = patch.read_text().partition("\ndiff --git")[0]
    for part in ("What:", "Why:", "Gain:", "Processors:", "Tested:", "Upstream:"):
        assert f"\n{part} " in header


def test_a_backend_without_the_kernels_gives_the_reference(for_tests: Path, f16_file: Path, reference: Any) -> None:
    texts = [TEXTS[name] for name in ("short", "sentence", "numbers", "rare words", "almost a tile")]
    found = by_each_variant(texts, f16_file, library=for_tests / "libggml-cpu-plain.so")
    expected = np.array([reference.embed(text) for text in computed(texts)])
    assert ((found["given"][0] * expected).sum(axis=1) >= 0.9999).all()
