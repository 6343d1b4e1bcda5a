"""The chart as a dependency of a parent chart, which passes its condition and its global values down to it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.chart.conftest import CHART, Objects, Refuse, Render

NAME = "memory-index"
GLOBAL = {"domain": "home.example", "storage": {"class": "nfs"}, "tracing": True}


@pytest.fixture(scope="module")
def parent(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parent chart with ours as a dependency by its folder, under a condition."""
    folder = tmp_path_factory.mktemp("parent")
    shutil.copytree(CHART, folder / "memory-index")
    dependency = {
        "name": NAME,
        "version": "0.1.0",
        "repository": "file://../memory-index",
        "condition": f"{NAME}.enabled",
    }
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (folder / "platform" / "templates").mkdir(parents=True)
    (folder / "platform" / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (folder / "platform" / "values.yaml").write_text("")
    run(helm, "dependency", "build", str(folder / "platform"), values=None)
    return folder / "platform"


def run(helm: Path, *arguments: str, values: dict[str, Any] | None) -> str:
    """Run helm with values at its standard input, and return what it prints."""
    files = [] if values is None else ["--values", "-"]
    done = subprocess.run(
        [str(helm), *arguments, *files], input=yaml.safe_dump(values), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.finding("operator F10")
def test_a_parents_condition_and_globals_pass(helm: Path, parent: Path, enabled: bool) -> None:
    """Helm passes both down, and the condition decides whether anything of ours is rendered."""
    values = {"global": GLOBAL, NAME: {"enabled": enabled}}
    objects = read_documents(run(helm, "template", str(parent), values=values))
    assert ("Deployment" in {body["kind"] for body in objects}) is enabled
    run(helm, "lint", str(parent), "--strict", "--quiet", values=values)


def images(objects: Objects) -> list[str]:
    """The image of the operator's container, and those of its environment."""
    (deployment,) = (body for body in objects if body["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    named = [one["value"] for one in container["env"] if one["name"].startswith("MEMORY_OPERATOR_IMAGES_")]
    return [container["image"], *(value for value in named if "/" in value)]


@pytest.mark.parametrize("registry", ["mirror.example:5000", "mirror.example/docker-hub"])
@pytest.mark.parametrize("pinned", [{"tag": "1"}, {"digest": "sha256:" + "a" * 64}], ids=["tag", "digest"])
def test_one_global_value_moves_every_image_to_a_mirror(render: Render, registry: str, pinned: dict[str, str]) -> None:
    """Nothing is pulled from elsewhere."""
    values = {
        name: {"image": {"repository": f"registry.example:443/team/memory-{name}", **pinned}}
        for name in ("operator", "embedder")
    }
    (end,) = (f"@{one}" if "digest" in pinned else f":{one}" for one in pinned.values())
    operator, embedder = (f"{registry}/team/memory-{name}{end}" for name in ("operator", "embedder"))
    assert images(render({**values, "global": {"imageRegistry": registry}})) == [operator, operator, embedder]
    assert images(render({**values, "global": {"imageRegistry": None}}))[0].startswith("registry.example:443/team/")


def test_the_documented_command_lists_every_image(helm: Path, tmp_path: Path, render: Render) -> None:
    """As the values of an air gap make them: what the mirror must have, and nothing else."""
    section = (CHART.parents[1] / "docs" / "install.md").read_text().partition("## Air gap")[2]
    command = section.partition("```sh\n")[2].partition("```")[0]
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "memory-index").symlink_to(CHART)
    values = CHART / "ci" / "air-gap-values.yaml"
    shutil.copy(values, tmp_path / "values.yaml")
    path = f"{helm.parent}:/usr/bin:/bin"
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=tmp_path, env={"PATH": path}, check=True)
    listed = (tmp_path / "images.txt").read_text().split()
    assert set(listed) == set(images(render(read_yaml(values.read_text()))))
    assert [image.split("/")[0] for image in listed] == ["mirror.home.example:5000"] * 2


def test_pull_secrets_of_a_parent_are_added_once(render: Render) -> None:
    """Charts write them as names or as objects."""
    values = {"imagePullSecrets": [{"name": "own"}], "global": {"imagePullSecrets": ["mirror", {"name": "own"}]}}
    (deployment,) = (body for body in render(values) if body["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"global": {"imageRegistry": "https://mirror.example"}}, "/global/imageRegistry"),
        ({"compatibility": {"openshift": {"adaptSecurityContext": "true"}}}, "adaptSecurityContext"),
        ({"enabled": "yes"}, "/enabled"),
        ({"enabld": True}, "enabld"),
    ],
)
def test_what_is_misspelt_is_still_refused(refuse: Refuse, values: dict[str, Any], named: str) -> None:
    """That globals and the condition pass opens nothing else."""
    assert named in refuse(values)
