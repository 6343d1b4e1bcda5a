"""The kubectl plugin: its manifest is one that krew accepts, and it runs `memory status --kube`."""

import importlib.util
import io
import re
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.yaml_text import read_yaml
from tests.unit.repository.test_layout import ROOT

KREW = ROOT / "tools" / "krew"
PACKAGES = ("recall", "operator", "embedder-service")


@pytest.fixture(scope="module")
def packing() -> ModuleType:
    """The module that packs the plugin."""
    spec = importlib.util.spec_from_file_location("krew_archive", KREW / "archive.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return dict(read_yaml((KREW / "memory-index.yaml").read_text()))


def test_the_manifest_names_the_digest_of_what_is_packed(packing: ModuleType) -> None:
    """After a change of the plugin, `python tools/krew/archive.py OUT_DIR` writes the manifest to be put here."""
    assert packing.manifest(packing.archive()) == (KREW / "memory-index.yaml").read_text()


def test_the_manifest_is_one_that_krew_accepts(manifest: dict[str, Any], packing: ModuleType) -> None:
    """The rules are those of krew's own validation of names, versions, platforms and file operations."""
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    for platform in spec["platforms"]:
        assert platform["selector"]
        assert platform["uri"].startswith("https://")
        packed = zipfile.ZipFile(io.BytesIO(packing.archive())).namelist()
        assert {entry["from"] for entry in platform["files"]} == set(packed)
        assert platform["bin"] in packed


def test_kubectl_finds_the_program_by_the_plugins_name(manifest: dict[str, Any]) -> None:
    """Kubectl turns the dash of a command's name into the underscore of the program's."""
    (platform,) = manifest["spec"]["platforms"]
    assert platform["bin"] == "kubectl-" + manifest["metadata"]["name"].replace("-", "_")


def ran(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(KREW / "kubectl-memory_index"), *arguments]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_it_passes_all_arguments_and_the_exit_status_on(tmp_path: Path) -> None:
    """Such as 4 where a person must act."""
    program = tmp_path / "memory"
    program.write_text('#!/bin/sh\necho "$@"\nexit 4\n')
    program.chmod(0o755)
    done = ran(tmp_path, "claude-memory", "-n", "claude-memory", "--json")
    assert (done.returncode, done.stdout) == (4, "status --kube claude-memory -n claude-memory --json\n")


def test_without_the_program_it_says_how_to_get_it(tmp_path: Path) -> None:
    """A plugin of krew's cannot bring a Python program along."""
    done = ran(tmp_path, "claude-memory")
    assert done.returncode == 127
    assert "pip install './recall[cli,kube]'" in done.stderr
