"""The images that a released chart installs, whose digests it was published with."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.release.packages import write_images
from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.chart.conftest import CHART
from tests.unit.chart.test_chart_rendering import environment

NAMES = ("operator", "embedder")
PUBLISHED = {name: f"r.example/memory-{name}@sha256:{digit * 64}" for name, digit in zip(NAMES, "ab", strict=True)}
TAGGED = [
    pytest.param(values, id=path.name)
    for path in sorted((CHART / "ci").glob("*-values.yaml"))
    for values in [read_yaml(path.read_text()) or {}]
    if any((values.get(name) or {}).get("image", {}).get("tag") for name in NAMES)
]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart with images as `make release` writes them."""
    chart = tmp_path_factory.mktemp("released") / CHART.name
    shutil.copytree(CHART, chart)
    write_images(chart, {f"localhost/memory-{name}": PUBLISHED[name] for name in NAMES})
    return chart


def images(helm: Path, chart: Path, values: dict[str, Any]) -> dict[str, str]:
    """The image of each name that the operator is told."""
    command = [str(helm), "template", "memory-index", str(chart), "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True)
    told = environment(read_documents(done.stdout))
    return {name: told[f"MEMORY_OPERATOR_IMAGES_{name.upper()}"] for name in NAMES}


def test_a_released_chart_installs_the_images_that_it_was_published_with(helm: Path, released: Path) -> None:
    assert images(helm, released, {}) == PUBLISHED


@pytest.mark.parametrize("values", TAGGED)
def test_a_tag_of_the_values_wins_over_the_digest_that_a_chart_was_published_with(
    helm: Path, released: Path, values: dict[str, Any]
) -> None:
    """The image for GPUs has a tag of its own in the same repository."""
    rendered = images(helm, released, values)
    for name in NAMES:
        tag = values.get(name, {}).get("image", {}).get("tag")
        end = f":{tag}" if tag else PUBLISHED[name][PUBLISHED[name].index("@") :]
        assert rendered[name].endswith(f"/memory-{name}{end}")


def test_a_digest_of_the_values_wins_over_the_one_that_a_chart_was_published_with(helm: Path, released: Path) -> None:
    values = {"embedder": {"image": {"tag": "1", "digest": "sha256:" + "c" * 64}}}
    assert images(helm, released, values) == PUBLISHED | {"embedder": "r.example/memory-embedder@sha256:" + "c" * 64}
