"""Rendering the chart with the real helm, which devcluster builds from its pinned source where it is not built yet."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from devcluster.building.binaries import Binaries
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from tests.support.yaml_text import read_documents, read_yaml

CHART = Path(__file__).parents[3] / "charts" / "memory-index"

Objects = list[dict[str, Any]]
Render = Callable[[Mapping[str, Any]], Objects]
RenderText = Callable[[Mapping[str, Any]], str]
Refuse = Callable[[Mapping[str, Any]], str]


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm that `devcluster` installs the chart with."""
    binaries = Binaries(Settings())
    binaries.ensure(ConsoleReporter(), ["helm"])
    return binaries.path("helm")


def _template(helm: Path, values: str) -> subprocess.CompletedProcess[str]:
    command = [str(helm), "template", "memory-index", str(CHART), "--namespace", "memory-index-system", "--values", "-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def render_text(helm: Path) -> RenderText:
    """What the chart renders from some values, as text, without the resource definition; from equal values once."""

    @cache
    def rendered(values: str) -> str:
        done = _template(helm, values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return lambda values: rendered(yaml.safe_dump(dict(values)))


@pytest.fixture(scope="session")
def render(render_text: RenderText) -> Render:
    """The objects that the chart renders from some values, without the resource definition."""
    return lambda values: read_documents(render_text(values))


@pytest.fixture(scope="session")
def refuse(helm: Path) -> Refuse:
    """The error of helm for values that the chart refuses."""

    def refused(values: Mapping[str, Any]) -> str:
        done = _template(helm, yaml.safe_dump(dict(values)))
        assert done.returncode != 0, done.stdout
        return done.stderr

    return refused


@pytest.fixture(scope="session")
def everything(render: Render) -> Objects:
    """Every object that the chart can render, with both ways to grant rights and to scrape."""
    switched_on = {
        "monitoring": {
            "scrape": "PodMonitor",
            "prometheusRule": {"enabled": True},
            "alertsConfigMap": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "networkPolicy": {"enabled": True},
        "commonLabels": {"team": "home"},
    }
    return render(switched_on) + render({"watchNamespaces": ["claude-memory"], "databaseNamespaces": ["dbaas"]})


@pytest.fixture(scope="session")
def resource_definition() -> dict[str, Any]:
    """The MemoryIndex resource definition that the chart ships."""
    return dict(read_yaml((CHART / "crds" / "memoryindexes.yaml").read_text()))


def setting_paths(model: type[BaseModel]) -> Iterator[str]:
    """Paths of the settings: the section, an underscore, the setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}_{path}" for path in setting_paths(field.annotation))
        else:
            yield name
