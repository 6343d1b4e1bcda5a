"""What `make images` prints and writes about the images that users push to their registry."""

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from cyclonedx.validation.json import JsonStrictValidator

from devcluster.images.archives import layers_of
from devcluster.images.materials import SPECIFICATION
from devcluster.settings import REPOSITORY

OURS = {"memory-operator": {"memory-operator", "memory-recall"}, "memory-embedder": {"memory-embedder"}}
LOCKS = {"memory-operator": ("operator",), "memory-embedder": ("embedder", "llama")}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], str]]:
    """The figures and the bill of materials of each image, by the image's name without its registry."""
    directory = tmp_path_factory.mktemp("sbom")
    command = [sys.executable, "-m", "devcluster", "images", "--json", "--sbom", str(directory)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    return {Path(report["sbom"]).name.removesuffix(".cdx.json"): (report, read(report)) for report in reports}


def read(report: dict[str, Any]) -> str:
    return Path(report["sbom"]).read_text(encoding="utf-8")


def components(text: str, prefix: str) -> dict[str, str]:
    """Versions by name of the components of one type of package URL."""
    return {
        component["name"]: component["version"]
        for component in json.loads(text)["components"]
        if component.get("purl", "").startswith(prefix)
    }


def modules(archive: Path) -> tuple[set[PurePosixPath], dict[PurePosixPath, bytes]]:
    """The sources of an image's modules in directories of Python's version, and the first bytes of all bytecode."""
    sources, compiled = set[PurePosixPath](), dict[PurePosixPath, bytes]()
    for layer in layers_of(archive):
        for entry in layer:
            path = PurePosixPath("/", entry.name)
            content = layer.extractfile(entry) if entry.isfile() and path.suffix == ".pyc" else None
            if content is not None:
                compiled[path] = content.read(8)
            elif path.suffix == ".py" and re.search(r"/lib/python3\.\d+/", str(path)):
                sources.add(path)
    return sources, compiled


def bytecode_of(source: PurePosixPath) -> PurePosixPath:
    """Where Python looks for the bytecode of a source."""
    minor = re.findall(r"/lib/python3\.(\d+)/", str(source))[0]
    return source.parent / "__pycache__" / f"{source.stem}.cpython-3{minor}.pyc"


def locked(lock: str) -> dict[str, str]:
    text = (REPOSITORY / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, flags=re.MULTILINE))


@pytest.mark.finding("M12")
def test_every_image_has_a_valid_bill_of_materials_and_a_size(documents: Any, figures: dict[str, Any]) -> None:
    assert documents.keys() == OURS.keys()
    everything: set[str] = set()
    for report, text in documents.values():
        assert JsonStrictValidator(SPECIFICATION).validate_str(text) is None
        references = {component["bom-ref"] for component in json.loads(text)["components"]}
        assert len(references) == report["components"]
        assert report["size"] == sum(report["layers"]) > 0
        everything |= references
    figures["sbom_components"] = len(everything)
    figures["image_megabytes"] = {name: round(report["size"] / 1e6) for name, (report, _) in documents.items()}


@pytest.mark.parametrize("name", OURS)
def test_the_python_distributions_of_an_image_are_the_locked_ones_and_ours(documents: Any, name: str) -> None:
    """Nothing is in the image that no lock names, and nothing has another version than there."""
    _, text = documents[name]
    pins = {distribution: version for lock in LOCKS[name] for distribution, version in locked(lock).items()}
    found = components(text, "pkg:pypi/")
    assert found.keys() >= OURS[name]
    assert {item: version for item, version in found.items() if item not in OURS[name]}.items() <= pins.items()


def test_the_embedder_s_bill_names_llama_cpp_and_the_model_with_digest_and_licence(documents: Any) -> None:
    _, text = documents["memory-embedder"]
    assert "llama.cpp" in components(text, "pkg:generic/")
    (model,) = [part for part in json.loads(text)["components"] if part["type"] == "machine-learning-model"]
    assert model["name"] == "all-MiniLM-L6-v2"
    assert re.fullmatch("[0-9a-f]{64}", model["hashes"][0]["content"])
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]


@pytest.mark.parametrize("name", OURS)
def test_an_image_names_its_base_by_digest_and_lists_the_base_s_packages(documents: Any, name: str) -> None:
    _, text = documents[name]
    properties = {item["name"]: item["value"] for item in json.loads(text)["metadata"]["component"]["properties"]}
    assert re.fullmatch("sha256:[0-9a-f]{64}", properties["org.opencontainers.image.base.digest"])
    assert properties["org.opencontainers.image.base.name"]
    assert "libc6" in components(text, "pkg:deb/")


@pytest.mark.parametrize("name", OURS)
def test_no_start_of_an_image_compiles_a_module(documents: Any, name: str) -> None:
    """All sources have bytecode beside them, those of the standard library too, that Python uses without a check."""
    report, _ = documents[name]
    sources, compiled = modules(Path(report["archive"]))
    assert {source.parts[1] for source in sources} == {"usr", "opt"}
    unchecked = (1).to_bytes(4, "little")
    assert not {source for source in sources if compiled.get(bytecode_of(source), b"")[4:] != unchecked}
