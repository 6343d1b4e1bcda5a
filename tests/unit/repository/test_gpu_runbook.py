"""The commands of the runbook for a lost GPU, on every example that uses one, with a kubectl that only keeps an object.

What a cluster answers is tried in tests/delivery, where no node has a GPU.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.pages import read_page
from tests.support.yaml_text import read_documents, read_yaml

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "runbooks" / "gpu-lost.md"
DEFINITION = ROOT / "charts" / "memory-index" / "crds" / "memoryindexes.yaml"
KUBECTL = """
import json, os, sys

file = os.environ["KEPT_OBJECT"]
words = sys.argv[1:]
kept = json.load(open(file))


def merged(value, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        result.pop(name, None) if inner is None else result.update({name: merged(result.get(name), inner)})
    return result


if "patch" in words:
    patch = json.loads(words[words.index("--patch") + 1])
    if "--type=merge" in words:
        now = merged(kept[-1], patch)
    else:
        (change,) = patch
        assert (change["op"], change["path"], "--type=json" in words) == ("replace", "/spec/embedder", True)
        now = {**kept[-1], "spec": {**kept[-1]["spec"], "embedder": change["value"]}}
    json.dump([*kept, now], open(file, "w"))
elif "jsonpath={.spec.embedder}" in words:
    print(json.dumps(kept[-1]["spec"]["embedder"]), end="")
elif "jsonpath={.status.embedder.device}" in words:
    print("cpu", end="")
"""

EXAMPLES = {
    path.stem: body["spec"]["embedder"]
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for body in read_documents(path.read_text())
    if body and body.get("kind") == "MemoryIndex" and "nvidia.com/gpu" in json.dumps(body["spec"].get("embedder", {}))
}
EMBEDDERS: dict[str, dict[str, Any]] = {
    **EXAMPLES,
    "one-limit": {"gpuLayers": -1, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "with-a-limit-of-memory": {
        "gpuLayers": 24,
        "gpuMemory": 1500,
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}},
    },
}


def followed(embedder: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """spec.embedder before the page, after each of its patches, and at its end."""
    kept, program = folder / "object.json", folder / "kubectl"
    kept.write_text(json.dumps([{"spec": {"embedder": embedder}}]))
    (folder / "kubectl.py").write_text(KUBECTL)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {folder}/kubectl.py "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "KEPT_OBJECT": str(kept)}
    script = read_page(PAGE).script({"BEFORE": str(folder / "before.json")})
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [one["spec"]["embedder"] for one in json.loads(kept.read_text())]


def test_an_example_uses_a_gpu() -> None:
    """Without one the test below would try less than it says."""
    assert "claude-memory" in EXAMPLES


@pytest.mark.parametrize("name", EMBEDDERS)
def test_nothing_of_the_gpu_is_left_and_all_of_it_comes_back(name: str, tmp_path: Path) -> None:
    """On the CPU no node with a GPU is asked for, and what the definition forbids beside gpuLayers 0 is gone."""
    embedder = EMBEDDERS[name]
    before, on_cpu, after = followed(embedder, tmp_path)
    assert before == after == embedder
    assert on_cpu["gpuLayers"] == 0
    assert not {"gpuMemory", "nodeSelector", "runtimeClassName"} & on_cpu.keys()
    for amounts in on_cpu["resources"].values():
        assert amounts.keys() <= {"cpu", "memory"}
    kept_as_it_was = embedder.keys() - {"gpuLayers", "gpuMemory", "nodeSelector", "runtimeClassName", "resources"}
    assert {key: on_cpu[key] for key in kept_as_it_was} == {key: embedder[key] for key in kept_as_it_was}
    assert not (tmp_path / "before.json").exists()


@pytest.mark.parametrize("name", EMBEDDERS)
def test_the_definition_describes_what_the_page_makes(name: str, tmp_path: Path) -> None:
    """Types, names and bounds; the rule about gpuMemory is held by the test above."""
    from jsonschema import Draft202012Validator  # takes more than a second, and every worker reads this file

    (version,) = read_yaml(DEFINITION.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["embedder"]
    for embedder in followed(EMBEDDERS[name], tmp_path):
        assert embedder.keys() <= schema["properties"].keys()
        Draft202012Validator(schema).validate(embedder)
