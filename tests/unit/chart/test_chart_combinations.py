"""The documented combinations of values: files in the chart's folder `ci`, where chart-testing looks for them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.makers.references.chart import combinations, leaves
from tests.support.yaml_text import read_yaml
from tests.unit.chart.conftest import CHART

COMBINATIONS = sorted((CHART / "ci").glob("*-values.yaml"))


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_helm_lints_the_combination_strictly(helm: Path, combination: Path) -> None:
    """`helm lint --strict` finds neither an error nor a warning in the chart with these values."""
    command = [helm, "lint", str(CHART), "--strict", "--quiet", "--values", combination]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_twenty_combinations_or_more() -> None:
    """The acceptance of the chart counts them."""
    assert len(COMBINATIONS) >= 20


def test_together_they_set_every_value() -> None:
    """A value that no combination sets would reach no API server in a test."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    every = names(read_yaml((CHART / "values.yaml").read_text()), schema)
    files = [read_yaml(file.read_text()) for file in COMBINATIONS]
    assert every - {name for values in files for name in names(values, schema)} == set()


def names(values: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """Return the dotted names of the values."""
    return {name for name, _, _ in leaves(values, schema)}


def test_each_says_what_it_is_for() -> None:
    """The reference shows each file's first comment."""
    shown = dict(combinations())
    assert len(shown) == len(COMBINATIONS)
    assert [file for file, purpose in shown.items() if not purpose] == []


def test_a_packaged_chart_leaves_them_out() -> None:
    """They are for tests and readers of the repository."""
    assert "ci" in (CHART / ".helmignore").read_text().splitlines()
