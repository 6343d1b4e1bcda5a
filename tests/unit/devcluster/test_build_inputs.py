"""Digests, pins and command lines of what is built."""

import io
import json
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devcluster import install
from devcluster.building import binaries, versions
from devcluster.building.argo_cd import ARGO_CD
from devcluster.building.cert_manager import CERT_MANAGER
from devcluster.building.digests import digest_of, digest_of_files
from devcluster.building.flux import FLUX
from devcluster.building.keda import KEDA
from devcluster.building.kube_router import KUBE_ROUTER
from devcluster.building.opentofu import OpenTofu, opentofu_tools
from devcluster.building.prometheus import PROMETHEUS
from devcluster.errors import DevclusterError
from devcluster.images.archives import ImageConfig, image_names, write_archive
from devcluster.images.bases import cnpg_image, mirror_from
from devcluster.images.builders import Build, buildah_arguments, engine_arguments
from devcluster.images.project import (
    CUDA_EMBEDDER,
    EMBEDDER,
    OPERATOR,
    Base,
    arguments_of,
    base_named,
    digests_of,
    key_of,
)
from devcluster.progress import SilentReporter
from devcluster.release.programs import RELEASE
from devcluster.settings import REPOSITORY, Settings
from tests.unit.repository.test_layout import tracked

BUILD = Build("localhost/x:dev", "Dockerfile.x", "cpu", {"BASE_IMAGE": "base"}, {"models": Path("/m")})


def test_a_digest_depends_on_names_and_contents_but_not_on_order() -> None:
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": b"2", "a": b"1"})
    assert (
        len({digest_of({"a": "1"}), digest_of({"a": "2"}), digest_of({"b": "1"}), digest_of({"a": "", "1": ""})}) == 4
    )


def test_a_digest_of_files_sees_every_change_but_not_compiled_files(tmp_path: Path) -> None:
    source = tmp_path / "package"
    source.mkdir()
    (source / "a.py").write_text("1", encoding="utf-8")
    before = digest_of_files(tmp_path, ["package"])
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.pyc").write_text("x", encoding="utf-8")
    assert digest_of_files(tmp_path, ["package"]) == before
    (source / "b.py").write_text("", encoding="utf-8")
    assert digest_of_files(tmp_path, ["package"]) != before


@pytest.mark.parametrize("path", ["gone", "empty"])
def test_there_is_no_digest_of_a_path_without_files(tmp_path: Path, path: str) -> None:
    """It would be that of nothing, whatever changes."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.py").write_text("1", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=path):
        digest_of_files(tmp_path, ["a.py", path])


def test_versions_are_read_from_go_mod() -> None:
    block = "require (\n\texample.com/a v1.2.3\n\texample.com/a/b v9.9.9 // indirect\n)\n"
    text = f"module m\n\n{block}require example.com/c v0.1.0\n"
    assert versions.required_version(text, "example.com/a") == "v1.2.3"
    assert versions.required_version(text, "example.com/c") == "v0.1.0"
    with pytest.raises(DevclusterError, match=r"example\.com/d"):
        versions.required_version(text, "example.com/d")


def test_kubernetes_staging_modules_follow_its_version() -> None:
    text = (REPOSITORY / "tools" / "cluster" / "go.mod").read_text(encoding="utf-8")
    staging = f"v0.{versions.tool_version('kubernetes').removeprefix('v1.')}"
    replacements = [line.split() for line in text.splitlines() if "=>" in line]
    assert replacements
    assert {line[-1] for line in replacements} == {staging}


@pytest.mark.parametrize(
    "tool",
    [*binaries.tools(), *opentofu_tools(), PROMETHEUS, ARGO_CD, CERT_MANAGER, *FLUX, KEDA, KUBE_ROUTER, RELEASE],
    ids=lambda tool: tool.name,
)
def test_every_tool_is_locked_and_kept_under_its_name(tool: binaries.Tool) -> None:
    assert (tool.directory / "go.mod").exists()
    assert (tool.directory / "go.sum").exists()
    assert tool.key.startswith(f"{tool.name}-")


def test_a_cluster_does_not_wait_for_opentofu_to_be_built(tmp_path: Path) -> None:
    """OpenTofu is a group of its own, which only the tests of delivery build."""
    missing = {tool.name for tool in binaries.Binaries(Settings(cache_dir=tmp_path)).missing()}
    assert "kubernetes" in missing
    assert missing.isdisjoint(tool.name for tool in opentofu_tools())


def test_opentofu_finds_its_providers_in_the_mirror_and_asks_no_registry(tmp_path: Path) -> None:
    """A provider lies below its address, version and platform, and nothing but the mirror is configured."""
    built = tmp_path / "built"
    built.mkdir()
    (built / "terraform-provider-x_v1.2.3").touch()
    tofu = OpenTofu(Path("tofu"), {("owner/x", "1.2.3"): built}, Path("definition.yaml"))
    configuration = tofu.write_mirror(tmp_path).read_text(encoding="utf-8")
    platform = f"linux_{binaries.go_architecture()}"
    mirror = tmp_path / "mirror"
    place = mirror / "registry.opentofu.org" / "owner" / "x" / "1.2.3" / platform
    assert (place / "terraform-provider-x_v1.2.3").exists()
    assert f'path = "{mirror}"' in configuration
    assert "direct" not in configuration


def test_a_file_that_is_kept_beside_the_programs_changes_their_key() -> None:
    """What was copied from another path must not be found under the old key."""
    tool = binaries.Tool("cnpg", {"cnpg-manager": "."}, files={"a.yaml": "one.yaml"})
    assert tool.key != replace(tool, files={"a.yaml": "two.yaml"}).key


def test_a_newer_toolchain_changes_the_key_of_its_tool_and_of_no_other() -> None:
    """What another version of Go compiled must not be found under the old key, and what needs none keeps its key."""
    assert KEDA.key != replace(KEDA, toolchain="go1.99.0").key
    assert {tool.toolchain for tool in binaries.tools()} == {""}


def test_a_module_of_which_only_files_are_kept_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool without programs is downloaded, its files are copied, and no compiler is asked for anything."""
    sources = tmp_path / "sources"
    tool = next(tool for tool in opentofu_tools() if not tool.programs)
    for path in tool.files.values():
        (sources / path).parent.mkdir(parents=True)
        (sources / path).write_text("kind: CustomResourceDefinition\n", encoding="utf-8")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    downloaded = json.dumps({"Dir": str(sources)})
    go.write_text(f"#!/bin/sh\n[ \"$1\" = mod ] && echo '{downloaded}'\n", encoding="utf-8")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    built = binaries.Binaries(Settings(cache_dir=tmp_path / "cache"), [tool])
    built.ensure(SilentReporter())
    assert {path.name for path in built.directory(tool.name).iterdir()} == set(tool.files)


def test_a_program_that_is_not_built_is_named_with_the_command_that_builds_it(tmp_path: Path) -> None:
    built = binaries.Binaries(Settings(cache_dir=tmp_path))
    with pytest.raises(DevclusterError, match="kubelet") as caught:
        built.path("kubelet")
    assert "devcluster binaries" in caught.value.remedy


def test_the_debian_mirror_is_the_one_of_apt() -> None:
    targets = "Other|Other|http://other.example/\nDebian|Debian-Security|http://s.example/x/\nDebian|Debian|http://d.example/debian/\n"
    assert mirror_from(targets) == "http://d.example/debian"
    with pytest.raises(DevclusterError, match="mirror"):
        mirror_from("Other|Other|http://other.example/\n")


def test_an_archive_is_reproducible_and_names_its_image(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as content:
        content.addfile(tarfile.TarInfo("file"), io.BytesIO())
    for name in ("one.tar", "two.tar"):
        write_archive(tmp_path / name, "localhost/x:1", layer, ImageConfig(("/x",), "65532", {"A": "b"}))
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert image_names(tmp_path / "one.tar") == ("localhost/x:1",)
    with tarfile.open(tmp_path / "one.tar") as archive:
        (name,) = [name for name in archive.getnames() if name.endswith(".json") and name != "manifest.json"]
        document = json.load(archive.extractfile(name) or io.BytesIO())
    assert document["config"]["User"] == "65532"
    assert document["config"]["Env"] == ["A=b"]


def test_buildah_pulls_nothing_and_trusts_the_machines_authorities() -> None:
    arguments = buildah_arguments(BUILD, Path("/etc/ssl/certs"))
    assert "--pull-never" in arguments
    assert "--volume=/etc/ssl/certs:/etc/ssl/certs:ro" in arguments
    assert not any(argument.startswith("--volume") for argument in buildah_arguments(BUILD, None))


@pytest.mark.parametrize("arguments", [buildah_arguments(BUILD, None), engine_arguments("docker", BUILD)])
def test_every_builder_gets_target_arguments_and_contexts(arguments: list[str]) -> None:
    expected = {
        "--file=Dockerfile.x",
        "--tag=localhost/x:dev",
        "--target=cpu",
        "--build-arg=BASE_IMAGE=base",
        "--build-context=models=/m",
    }
    assert expected <= set(arguments)
    assert arguments[-1] == "."


@pytest.mark.parametrize("arguments", [buildah_arguments, lambda build, _: engine_arguments("podman", build)])
def test_a_foreign_build_is_told_both_platforms_and_another_none(arguments: Any) -> None:
    """The stages that install and compile run on this machine; buildah 1.28 does not know what this machine is."""
    foreign = arguments(replace(BUILD, architecture="riscv64"), None)
    assert "--platform=linux/riscv64" in foreign
    assert f"--build-arg=BUILDPLATFORM=linux/{binaries.go_architecture()}" in foreign
    assert not any("platform" in argument.lower() for argument in arguments(BUILD, None))


@pytest.mark.parametrize("lock", ["operator", "embedder", "cuda"])
def test_no_requirement_of_an_image_depends_on_a_processor(lock: str) -> None:
    """Wheels for another processor are chosen on this machine, whose own processor pip would compare with."""
    text = (REPOSITORY / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    markers = re.findall(r"^\S+==\S+ *; *(.*?) *\\?$", text, flags=re.MULTILINE)
    assert not [marker for marker in markers if "platform_machine" in marker or "platform_version" in marker]


def test_an_image_is_rebuilt_when_its_base_or_a_given_file_changes(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"weights")
    (tmp_path / "two.gguf").write_bytes(b"other weights")
    keys = {
        key_of(OPERATOR, base="a", given={}),
        key_of(OPERATOR, base="b", given={}),
        key_of(EMBEDDER, base="a", given={}),
        key_of(EMBEDDER, base="a", given={"models": tmp_path / "one.gguf"}),
        key_of(EMBEDDER, base="a", given={"models": tmp_path / "two.gguf"}),
    }
    assert len(keys) == 5


def test_a_given_file_is_stated_by_the_digest_that_sha256sum_prints(tmp_path: Path) -> None:
    """The Dockerfile can compare the build argument with the file itself."""
    file = tmp_path / "x.whl"
    file.write_bytes(b"wheel")
    printed = subprocess.run(["sha256sum", file], check=True, capture_output=True, text=True).stdout
    assert digests_of({"wheelhouse": file}) == {"WHEELHOUSE_DIGEST": printed.split()[0]}


@pytest.mark.finding("M12")
@pytest.mark.parametrize(
    ("name", "known", "base"),
    [
        ("python:3.13-slim", "", Base("python:3.13-slim")),
        ("python:3.13-slim", "sha256:aa", Base("python:3.13-slim", "sha256:aa")),
        ("python:3.13-slim@sha256:bb", "sha256:aa", Base("python:3.13-slim@sha256:bb", "sha256:bb")),
    ],
)
def test_a_base_that_is_named_with_a_digest_is_built_on_and_recorded_by_it(name: str, known: str, base: Base) -> None:
    found = base_named(name, known)
    assert found == base
    arguments = arguments_of(found, "python:own", {})
    assert (arguments["BASE_IMAGE"], arguments["BASE_DIGEST"]) == (base.name, base.digest)
    assert arguments["BUILD_IMAGE"] == "python:own"


@pytest.mark.parametrize("dockerfile", ["Dockerfile.operator", "Dockerfile.embedder"])
def test_both_images_say_which_base_they_stand_on(dockerfile: str) -> None:
    text = (REPOSITORY / dockerfile).read_text(encoding="utf-8")
    assert "FROM --platform=$TARGETPLATFORM ${BASE_IMAGE} AS base" in text
    for label, argument in (("name", "BASE_NAME"), ("digest", "BASE_DIGEST")):
        assert f'org.opencontainers.image.base.{label}="${{{argument}}}"' in text
        assert f'ARG {argument}=""' in text


def test_no_image_says_which_gpus_its_containers_see() -> None:
    """A pod without a GPU among its resources would get every GPU of the node, past the scheduler and quotas."""
    for path in tracked("*Dockerfile*"):
        assert "NVIDIA_VISIBLE_DEVICES" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("image", [OPERATOR, EMBEDDER, CUDA_EMBEDDER], ids=lambda image: image.key)
def test_everything_that_goes_into_an_image_exists(image: object) -> None:
    assert all((REPOSITORY / path).exists() for path in image.inputs)  # type: ignore[attr-defined]


def test_cloudnative_pgs_deployment_pulls_no_image_that_is_there_and_has_no_cpu_limit() -> None:
    manifest = """
apiVersion: v1
kind: Namespace
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: x
        imagePullPolicy: Always
        resources: {limits: {cpu: 100m, memory: 200Mi}}
"""
    adapted = install.adapt_manifest(manifest)
    assert "kind: Namespace" in adapted
    assert "IfNotPresent" in adapted
    assert "cpu" not in adapted
    assert "200Mi" in adapted


def test_cloudnative_pgs_image_has_the_version_of_its_module() -> None:
    assert cnpg_image().endswith(f":{versions.tool_version('cnpg').removeprefix('v')}")
