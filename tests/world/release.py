"""A release, published to a registry with TLS and a login, and installed from nothing but that registry."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import devcluster
from devcluster import processes
from devcluster.building.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.postgres import create_postgres
from devcluster.release.artifacts import Artifact, Release
from devcluster.release.programs import ensure_programs
from devcluster.settings import REPOSITORY
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import Tenant
from tests.support.documents import commands
from tests.support.invented import question
from tests.support.recalling.loop import RecallLoop
from tests.support.recalling.pods import spawn_recalls
from tests.world.parts import Figures, Run
from tests.world.registry import HOST, PASSWORD, USER, OwnRegistry

FIRST, SECOND = "0.1.0", "0.1.1"
PREFIX = f"{HOST}/memory-index"
_DOCUMENTED = "registry.home.example"
_PASSWORD = {"COSIGN_PASSWORD": "of the test"}
_SECONDS = 3600.0
_ROWS = rows(40)
_ANSWERS = 10


def prove_release(run: Run) -> Figures:
    """Publish two versions, build the first one again, and install and upgrade from the registry alone."""
    binaries = ensure_programs(run.settings, run.reporter)
    registry = OwnRegistry(run.scratch / "registry", binaries)
    programs = _Programs(binaries, Binaries(run.settings))
    processes.run([binaries.path("cosign"), "generate-key-pair"], cwd=registry.directory, env=_PASSWORD)
    with registry.running():
        refused = registry.refusals()
        assert all(refused.values()), f"the registry is open: {refused}"
        releases = {version: _publish(version, run, registry) for version in (FIRST, SECOND)}
        proven = {kind: _share(kind, releases[FIRST], registry, programs) for kind in ("signed", "provenance")}
        rebuilt = _rebuild(run)
    with _cluster(registry) as cluster:
        installed = _install_and_upgrade(cluster, run, registry, programs)
    platforms = {one.platform for one in releases[FIRST].artifacts if one.platform.startswith("linux/")}
    figures = {"platforms": len(platforms), **proven, "rebuilt_equal": rebuilt}
    assert (figures["signed"], figures["provenance"], figures["rebuilt_equal"]) == ("all", "all", "all"), figures
    return {"release": figures, **installed}


class _Programs:
    """The programs that a user has: a search path with kubectl, helm, crane and cosign."""

    def __init__(self, release: Binaries, cluster: Binaries) -> None:
        folders = [release.directory("release"), cluster.directory("helm"), cluster.directory("kubernetes")]
        self.path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])


def _publish(version: str, run: Run, registry: OwnRegistry) -> Release:
    """Publish a version from a clone, by the documented commands."""
    clone = run.scratch / f"clone-{version}"
    processes.run(["git", "clone", "--quiet", REPOSITORY, clone])
    processes.run([sys.executable, "-m", "devcluster", "version", version], cwd=clone)
    changelog = clone / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace("## [Unreleased]", f"## [Unreleased]\n\n## [{version}]", 1), encoding="utf-8")
    author = ("-c", "user.name=releaser", "-c", "user.email=releaser@example.org")
    processes.run(["git", *author, "commit", "--quiet", "--all", "--message", f"Release {version}"], cwd=clone)
    # A key that cannot be opened ends a release before it is complete; it is done over, but not once it is published.
    broken_off = _failure(version, run.scratch / f"{version}-without-key", run, registry, password="another")
    assert "COSIGN_PASSWORD" in broken_off, f"a key was used without its password: {broken_off}"
    assert not (failure := _failure(version, run.scratch / version, run, registry)), failure
    refused = _failure(version, run.scratch / f"{version}-again", run, registry)
    assert f"has version {version} already" in refused, f"version {version} was published twice: {refused}"
    return Release.read(run.scratch / version)


def _failure(
    version: str, target: Path, run: Run, registry: OwnRegistry, *, password: str = _PASSWORD["COSIGN_PASSWORD"]
) -> str:
    """Publish a version into a directory; return why that failed, or an empty string."""
    key = registry.directory / "cosign.key"
    command = [sys.executable, "-m", "devcluster", "release", version, PREFIX, "--key", key, "--output", target]
    environment = {**registry.environment, "COSIGN_PASSWORD": password}
    try:
        processes.run(command, cwd=run.scratch / f"clone-{version}", env=environment, timeout=_SECONDS)
    except CommandError as error:
        return str(error)
    return ""


def _rebuild(run: Run) -> str | dict[str, Any]:
    """Build the first release again from its clone; return `all`, or the files in which an artifact differs, by it."""
    command = [sys.executable, "-m", "devcluster", "rebuild", run.scratch / FIRST]
    answer = processes.run(command, cwd=run.scratch / f"clone-{FIRST}", timeout=_SECONDS)
    compared = json.loads(answer.splitlines()[-1])
    return {name: found for name, found in compared.items() if found != "equal"} or "all"


def _share(kind: str, release: Release, registry: OwnRegistry, programs: _Programs) -> str | int:
    """Return `all` if each digest is signed, or has provenance, by our key, else how many have."""
    proven = [_is_proven(kind, artifact, registry, programs) for artifact in release.artifacts]
    return "all" if all(proven) else sum(proven)


def _is_proven(kind: str, artifact: Artifact, registry: OwnRegistry, programs: _Programs) -> bool:
    verify = ["verify-attestation", "--type=slsaprovenance1"] if kind == "provenance" else ["verify"]
    key = registry.directory / "cosign.pub"
    command = ["cosign", *verify, f"--key={key}", "--insecure-ignore-tlog=true", artifact.by_digest]
    environment = {**os.environ, **registry.environment, "PATH": programs.path}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def _cluster(registry: OwnRegistry) -> Iterator[Cluster]:
    """Start a cluster that has none of our images, with the registry in its network."""
    with devcluster.start("from-registry") as cluster:
        devcluster.install_cnpg(cluster)
        cluster.trust_registry(HOST, registry.authority)
        with registry.running(cluster.exec_command):
            yield cluster


def _install_and_upgrade(cluster: Cluster, run: Run, registry: OwnRegistry, programs: _Programs) -> Figures:
    """Follow the installation page in an empty directory until an index is Ready, then upgrade under recalls."""
    began = time.monotonic()
    postgres = create_postgres(cluster, namespace="dbaas", name="pg-cluster", storage="1Gi")
    (operator,) = (
        one.by_digest
        for one in Release.read(run.scratch / FIRST).artifacts
        if one.platform == "index" and one.name == "memory-operator"
    )
    tenant = Tenant(postgres, "claude-memory", operator)
    log_in, install, upgrade = _documented()
    empty = run.scratch / "empty"
    empty.mkdir()
    shutil.copy(registry.directory / "cosign.pub", empty)
    (empty / "values.yaml").write_text("global: {imagePullSecrets: [{name: registry}]}\n", encoding="utf-8")
    login = {"REGISTRY_USER": USER, "REGISTRY_PASSWORD": PASSWORD}
    environment = {**registry.environment, **login, "PATH": programs.path}

    def follow(lines: list[str], version: str) -> None:
        for line in lines:
            text = line.replace(_DOCUMENTED, HOST).replace(FIRST, version)
            cluster.exec_in_network(["env", "-C", str(empty), "sh", "-ec", text], env=environment, timeout=_SECONDS)

    follow(log_in, FIRST)
    tenant.create()
    tenant.store(_ROWS)
    follow(install, FIRST)
    tenant.apply_index()
    tenant.wait_ready()
    minutes = (time.monotonic() - began) / 60
    tenant.start_toolbox()
    faults = asyncio.run(_upgrade_under_recalls(tenant, partial(follow, upgrade, SECOND)))
    assert not faults, f"{len(faults)} recalls failed while the release was upgraded: {faults[:3]}"
    image = cluster.kubectl(
        "-n", OPERATOR_NAMESPACE, "get", "deployment/memory-operator", "-o", "jsonpath={..containers[0].image}"
    )
    assert image in {one.by_digest for one in Release.read(run.scratch / SECOND).artifacts}, f"{image} is installed"
    return {"from_registry_minutes": round(minutes, 1), "upgrade_recall_errors": len(faults)}


def _documented() -> tuple[list[str], list[str], list[str]]:
    """Return the commands of the installation page by which pods may pull, which install, and which upgrade."""
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("## From a registry")[2].partition("\n## ")[0]
    lines = [line for line in commands(REPOSITORY / "docs" / "install.md") if line.split("  ")[0] in section]
    names = [" ".join(line.split()[: 1 if line.startswith("kubectl") else 2]) for line in lines[:10]]
    followed = ["kubectl"] * 5 + ["cosign verify", "helm install", "helm pull", "helm show", "helm upgrade"]
    assert names == followed, f"docs/install.md does not say how to install from a registry: {names}"
    return lines[:5], lines[5:7], lines[7:10]


async def _upgrade_under_recalls(tenant: Tenant, upgrade: "partial[None]") -> list[str]:
    generator = random.Random(3)  # noqa: S311  (the same questions in every run)
    questions = [question(one.content, generator) for one in _ROWS if not one.is_sensitive][:20]
    async with RecallLoop("present", partial(spawn_recalls, tenant), questions) as loop:
        await loop.wait_until_complete()
        await asyncio.to_thread(upgrade)
        await asyncio.to_thread(tenant.wait_ready)
        await loop.wait_for_answers(_ANSWERS)
        return loop.faults()
