"""What is read from an image archive, and the bill of materials that is written about it."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from devcluster.errors import DevclusterError
from devcluster.images.contents import Contents, read_contents
from devcluster.images.installed import Item, Kind, installed_items, licence_of
from devcluster.images.materials import SPECIFICATION, write_materials
from devcluster.images.report import report_image

SITE = "opt/venv/lib/python3.13/site-packages"
STATUS = """\
Package: apt
Status: install ok installed
Architecture: amd64
Version: 3.0.4
Description: a package manager
 of several lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
RELEASE = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_CODENAME=trixie\n'
MODEL = b"weights"


def schema_violation(materials: str) -> object:
    """Return how a bill of materials violates CycloneDX's schema, or None if it does not.

    The validator is imported late: that takes three seconds, and every worker imports all tests to collect them.
    """
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SPECIFICATION).validate_str(materials)


def metadata(name: str, version: str, *lines: str) -> str:
    return "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines, "", "A description."])


def layer(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as content:
        for path, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(path)
            member.size = len(data)
            content.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def archive(path: Path, layers: list[dict[str, str | bytes]], config: dict[str, Any], name: str) -> Path:
    """Write an archive as buildah does: a layer's bytes once, and below the layer's name a link to them."""
    with tarfile.open(path, "w") as content:

        def add(member: str, data: bytes) -> None:
            information = tarfile.TarInfo(member)
            information.size = len(data)
            content.addfile(information, io.BytesIO(data))

        names = []
        for number, files in enumerate(layers):
            add(f"{number}.tar", layer(files))
            link = tarfile.TarInfo(f"{number}/layer.tar")
            link.type, link.linkname = tarfile.SYMTYPE, f"../{number}.tar"
            content.addfile(link)
            names.append(link.name)
        add("config.json", json.dumps({"config": config}).encode())
        add("manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": names}]).encode())
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    base: dict[str, str | bytes] = {
        "./var/lib/dpkg/status": STATUS,
        "./usr/lib/os-release": RELEASE,
        f"./{SITE}/old-1.dist-info/METADATA": metadata("old", "1"),
        f"./{SITE}/kept-1.dist-info/METADATA": metadata("Kept.Name", "1", "License-Expression: MIT"),
    }
    change: dict[str, str | bytes] = {
        f"{SITE}/.wh.old-1.dist-info": "",
        f"{SITE}/kept-1.dist-info/METADATA": metadata("Kept.Name", "2", "License-Expression: MIT OR Apache-2.0"),
        f"{SITE}/lib/pkgconfig/llama.pc": "Name: llama\nVersion: 0.5.0\n",
        f"{SITE}/bin/libggml-cuda.so": b"kernels",
        "models/all-MiniLM-L6-v2.gguf": MODEL,
    }
    labels = {
        "org.opencontainers.image.version": "0.1.0",
        "org.opencontainers.image.base.digest": "sha256:00ff",
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {"Env": ["PATH=/bin", "PYTHON_VERSION=3.13.9"], "Labels": labels}
    return archive(tmp_path / "image.tar", [base, change], config, "localhost/memory-x:dev")


def test_an_image_is_what_its_last_layer_left(image: Path) -> None:
    """A file that a later layer replaces or removes does not count, and each layer's size does."""
    contents = read_contents(image)
    assert f"{SITE}/old-1.dist-info/METADATA" not in contents.texts
    assert "Version: 2" in contents.texts[f"{SITE}/kept-1.dist-info/METADATA"]
    assert contents.digests["models/all-MiniLM-L6-v2.gguf"] == hashlib.sha256(MODEL).hexdigest()
    assert len(contents.layers) == 2
    assert contents.size == sum(contents.layers) > 0


def test_an_emptied_folder_loses_everything_below_it(tmp_path: Path) -> None:
    layers: list[dict[str, str | bytes]] = [
        {"models/a.gguf": b"a", "usr/lib/os-release": RELEASE},
        {"models/.wh..wh..opq": "", "models/b.gguf": b"b"},
    ]
    contents = read_contents(archive(tmp_path / "image.tar", layers, {}, "x:1"))
    assert set(contents.digests) == {"models/b.gguf"}
    assert set(contents.texts) == {"usr/lib/os-release"}


def test_everything_that_the_image_says_is_installed_is_listed_once(image: Path) -> None:
    assert installed_items(read_contents(image)) == [
        Item(Kind.DEBIAN, "apt", "3.0.4", architecture="amd64", distribution="trixie"),
        Item(Kind.OTHER, "ggml-cuda", "0.5.0", "MIT", hashlib.sha256(b"kernels").hexdigest()),
        Item(Kind.OTHER, "llama.cpp", "0.5.0", "MIT"),
        Item(Kind.OTHER, "python", "3.13.9", "PSF-2.0"),
        Item(Kind.MODEL, "all-MiniLM-L6-v2", "", "Apache-2.0", hashlib.sha256(MODEL).hexdigest()),
        Item(Kind.PYTHON, "kept-name", "2", "MIT OR Apache-2.0"),
    ]


@pytest.mark.parametrize(
    ("expression", "classifiers", "text", "licence"),
    [
        ("MIT", ["License :: OSI Approved :: BSD License"], "BSD", "MIT"),
        (None, ["License :: OSI Approved :: BSD License"], "BSD-3-Clause", "BSD-3-Clause"),
        (None, ["License :: OSI Approved :: BSD License"], "Copyright\nAll rights\n", "BSD License"),
        (None, ["Topic :: Internet", "License :: Public Domain"], "", "Public Domain"),
        (None, [], "", ""),
    ],
)
def test_a_licence_is_the_shortest_thing_that_a_distribution_states(
    expression: str | None, classifiers: list[str], text: str, licence: str
) -> None:
    assert licence_of(expression, classifiers, text) == licence


def test_the_bill_of_materials_obeys_the_schema_of_cyclonedx(image: Path) -> None:
    contents = read_contents(image)
    text = write_materials(contents, installed_items(contents), "ab" * 32)
    assert schema_violation(text) is None
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert {"name": "org.opencontainers.image.base.digest", "value": "sha256:00ff"} in document["metadata"][
        "component"
    ]["properties"]
    components = {component["name"]: component for component in document["components"]}
    assert components["apt"]["purl"] == "pkg:deb/debian/apt@3.0.4?arch=amd64&distro=trixie"
    assert components["kept-name"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert components["all-MiniLM-L6-v2"]["type"] == "machine-learning-model"


def test_a_broken_bill_of_materials_does_not_obey_it() -> None:
    """The validator that the other tests trust refuses something."""
    assert schema_violation('{"bomFormat": "CycloneDX"}') is not None


def test_the_same_image_gives_the_same_bytes(image: Path) -> None:
    contents = read_contents(image)
    items = installed_items(contents)
    assert write_materials(contents, items, "ab" * 32) == write_materials(contents, list(reversed(items)), "ab" * 32)


def test_a_licence_of_no_known_form_is_kept_as_a_name() -> None:
    contents = Contents("localhost/x:dev", (1,))
    text = write_materials(contents, [Item(Kind.PYTHON, "x", "1", "See the file LICENSE")], "00" * 32)
    assert schema_violation(text) is None
    assert json.loads(text)["components"][0]["licenses"] == [{"license": {"name": "See the file LICENSE"}}]


def test_a_report_names_sizes_components_and_the_file_that_lists_them(image: Path, tmp_path: Path) -> None:
    report = report_image(image, tmp_path / "sbom")
    assert report.components == 6
    assert report.digest == hashlib.sha256(image.read_bytes()).hexdigest()
    assert Path(report.sbom) == tmp_path / "sbom" / "memory-x.cdx.json"
    assert len(json.loads(Path(report.sbom).read_text())["components"]) == report.components
    printed = "\n".join(report.lines())
    assert all(str(text) in printed for text in (report.name, report.archive, report.sbom, report.digest, " 6, listed"))


def test_an_archive_without_a_layer_is_refused_by_name(tmp_path: Path) -> None:
    """Otherwise the size and the bill of materials would leave the layer out and nobody would notice."""
    path = archive(tmp_path / "image.tar", [], {}, "x:1")
    with tarfile.open(path, "w") as content:
        for name, data in (
            ("config.json", {"config": {}}),
            ("manifest.json", [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": ["lost/layer.tar"]}]),
        ):
            member = tarfile.TarInfo(name)
            text = json.dumps(data).encode()
            member.size = len(text)
            content.addfile(member, io.BytesIO(text))
    with pytest.raises(DevclusterError, match=r"has no lost/layer\.tar"):
        read_contents(path)
