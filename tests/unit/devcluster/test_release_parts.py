"""What a release says about itself, and what it refuses to be made from."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from devcluster.errors import DevclusterError
from devcluster.images.archives import ImageConfig, write_archive
from devcluster.release.artifacts import Artifact, Release
from devcluster.release.notes import write_notes
from devcluster.release.packages import pack_plugin, write_images
from devcluster.release.provenance import provenance
from devcluster.release.rebuilding import differing_files, files_of_image
from devcluster.release.source import Source, read_notes, read_source
from devcluster.release.version import read_version
from devcluster.settings import REPOSITORY
from tests.support.yaml_text import read_yaml

COMMIT = "c0ffee" * 6 + "abcd"
OPERATOR = Artifact("memory-operator", "r.example/m/memory-operator:1.2.3", "sha256:aa", "index")
AMD64 = Artifact("memory-operator", "r.example/m/memory-operator:1.2.3-amd64", "sha256:bb", "linux/amd64", "a.tar")
CHART = Artifact("chart", "r.example:5000/m/charts/memory-index:1.2.3", "sha256:cc", file="c.tgz")
RELEASE = Release("1.2.3", COMMIT, 0, "r.example/m", (OPERATOR, AMD64, CHART))


def test_a_release_is_read_as_it_was_written(tmp_path: Path) -> None:
    RELEASE.write(tmp_path)
    assert Release.read(tmp_path) == RELEASE


def test_a_digest_replaces_the_tag_and_not_the_port() -> None:
    assert CHART.by_digest == "r.example:5000/m/charts/memory-index@sha256:cc"


IMAGES = {"localhost/memory-operator": "r.example/o@sha256:aa", "localhost/memory-embedder": "r.example/e@sha256:bb"}


def test_a_released_chart_names_both_repositories_and_digests_and_is_else_unchanged(tmp_path: Path) -> None:
    developed, released = REPOSITORY / "charts" / "memory-index", tmp_path / "memory-index"
    shutil.copytree(developed, released)
    write_images(released, IMAGES)
    before, after = (read_yaml((chart / "values.yaml").read_text()) for chart in (developed, released))
    for name, repository in (("operator", "r.example/o"), ("embedder", "r.example/e")):
        assert after[name]["image"]["repository"] == repository
        after[name]["image"]["repository"] = before[name]["image"]["repository"]
    assert after == before
    before, after = (read_yaml((chart / "Chart.yaml").read_text()) for chart in (developed, released))
    digests = {"memory-operator": "sha256:aa", "memory-embedder": "sha256:bb"}
    before["annotations"] |= {f"memory-index.dev/digest-of-{name}": digest for name, digest in digests.items()}
    assert after == before


def test_values_without_an_image_are_refused(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("operator: {}\n")
    with pytest.raises(DevclusterError, match="localhost/memory-operator"):
        write_images(tmp_path, IMAGES)


def test_the_plugin_is_packed_with_its_manifest_for_krew(tmp_path: Path) -> None:
    packed = pack_plugin(Source(REPOSITORY, COMMIT, 0, ""), tmp_path)
    assert [path.name for path in packed] == ["memory-index.yaml", "memory-index.zip"]
    (platform,) = read_yaml(packed[0].read_text())["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(packed[1].read_bytes()).hexdigest()


def test_the_notes_have_the_news_every_digest_and_commands_with_real_references() -> None:
    notes = write_notes(RELEASE, "- **New**: everything.")
    assert "- **New**: everything." in notes
    for artifact in RELEASE.artifacts:
        assert artifact.digest in notes
    assert f"--insecure-ignore-tlog=true {CHART.by_digest}" in notes
    assert f"cyclonedx {AMD64.by_digest}" in notes


def test_the_provenance_names_the_commit_the_locks_and_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "operator.txt").write_text("kopf==1 --hash=sha256:00\n")
    source = Source(tmp_path, COMMIT, 0, "https://git.example/m")
    text = provenance(
        source,
        version="1.2.3",
        registry="r.example/m",
        platforms={"linux/arm64"},
        builder="https://b",
        began=0,
        ended=60,
    )
    definition, details = json.loads(text)["buildDefinition"], json.loads(text)["runDetails"]
    assert definition["externalParameters"] == {
        "version": "1.2.3", "registry": "r.example/m", "platforms": ["linux/arm64"]
    }  # fmt: skip
    commit, lock = definition["resolvedDependencies"]
    assert commit == {"uri": "git+https://git.example/m", "digest": {"gitCommit": COMMIT}}
    assert lock["name"] == "requirements/operator.txt"
    assert details["metadata"] == {"startedOn": "1970-01-01T00:00:00Z", "finishedOn": "1970-01-01T00:01:00Z"}


def test_a_changed_checkout_of_another_version_without_news_is_refused_with_all_three_faults(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(tmp_path / "clone")], check=True)
    (tmp_path / "clone" / "new").write_text("not committed")
    with pytest.raises(DevclusterError) as refused:
        read_source(tmp_path / "clone", "99.0.0")
    told = str(refused.value)
    assert "such as new" in told
    assert f"of version {read_version(REPOSITORY)}: make version VERSION=99.0.0" in told
    assert "no section `## [99.0.0]`" in told


def test_the_notes_of_a_version_end_where_the_next_section_begins(tmp_path: Path) -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2026-12-01\n\n- New.\n\n## [1.0.0]\n\n- Old.\n"
    (tmp_path / "CHANGELOG.md").write_text(text)
    assert read_notes(tmp_path, "1.1.0") == "- New."
    assert read_notes(tmp_path, "1.0.0") == "- Old."
    assert read_notes(tmp_path, "Unreleased") == ""


def image(tmp_path: Path, name: str, files: dict[str, tuple[bytes, int]]) -> Path:
    layer = tmp_path / f"{name}.layer"
    with tarfile.open(layer, "w") as content:
        for path, (data, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), mode
            content.addfile(entry, io.BytesIO(data))
    write_archive(tmp_path / name, "localhost/x:dev", layer, ImageConfig())
    return tmp_path / name


def test_files_of_two_images_that_differ_in_content_or_mode_are_named(tmp_path: Path) -> None:
    first = image(tmp_path, "a", {"same": (b"1", 0o644), "mode": (b"1", 0o644), "text": (b"1", 0o644)})
    second = image(tmp_path, "b", {"./same": (b"1", 0o644), "mode": (b"1", 0o755), "text": (b"2", 0o644)})
    assert differing_files(files_of_image(first), files_of_image(second)) == ("mode", "text")
    assert differing_files(files_of_image(first), files_of_image(first)) == ()


def test_the_workflow_calls_the_command_and_nothing_else() -> None:
    workflow = read_yaml((REPOSITORY / ".github" / "workflows" / "release.yaml").read_text())
    steps = workflow["jobs"]["release"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert [command.split()[:2] for command in commands] == [["make", "release"]]
    assert "make release VERSION=" in (REPOSITORY / "docs" / "release.md").read_text()
