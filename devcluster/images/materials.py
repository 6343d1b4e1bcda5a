"""Writes the bill of materials (SBOM) of an image: one CycloneDX document in JSON.

The same image gives the same document: the serial number is made from the image's digest, and there is no time in it.
"""

from collections.abc import Iterable
from importlib.metadata import version
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from devcluster.images.contents import Contents
from devcluster.images.installed import Item, Kind

SPECIFICATION = SchemaVersion.V1_6
_LABELS_OF_BASE = "org.opencontainers.image.base."
_TYPES = {Kind.MODEL: ComponentType.MACHINE_LEARNING_MODEL}


def write_materials(contents: Contents, items: Iterable[Item], digest: str) -> str:
    """Return the bill of materials of an image with these items; `digest` is the sha256 of the image's archive."""
    name, _, tag = contents.name.rpartition("/")[2].partition(":")
    image = Component(
        name=name,
        version=contents.labels.get("org.opencontainers.image.version", tag),
        type=ComponentType.CONTAINER,
        bom_ref=f"image:{name}",
        licenses=_licences(contents.labels.get("org.opencontainers.image.licenses", "")),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        properties=[
            Property(name=label, value=value)
            for label, value in sorted(contents.labels.items())
            if label.startswith(_LABELS_OF_BASE)
        ],
    )
    document = Bom(components=[_component(item) for item in items], serial_number=uuid5(NAMESPACE_URL, digest))
    document.metadata.timestamp = None  # type: ignore[assignment]  # optional in the specification, not in the library
    document.metadata.component = image
    document.metadata.tools.components.add(
        Component(name="cyclonedx-python-lib", version=version("cyclonedx-python-lib"), type=ComponentType.LIBRARY)
    )
    document.register_dependency(image, document.components)
    return make_outputter(document, OutputFormat.JSON, SPECIFICATION).output_as_string(indent=2) + "\n"


def _component(item: Item) -> Component:
    address = _address(item)
    return Component(
        name=item.name,
        version=item.version or None,
        type=_TYPES.get(item.kind, ComponentType.LIBRARY),
        bom_ref=address.to_string() if address else f"{item.kind}:{item.name}",
        purl=address,
        licenses=_licences(item.licence),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)] if item.sha256 else None,
    )


def _address(item: Item) -> PackageURL | None:
    if item.kind is Kind.MODEL:
        return None
    qualifiers = {"arch": item.architecture, "distro": item.distribution}
    return PackageURL(
        type=item.kind,
        namespace="debian" if item.kind is Kind.DEBIAN else None,
        name=item.name,
        version=item.version,
        qualifiers={key: value for key, value in qualifiers.items() if value},
    )


def _licences(text: str) -> list[License] | None:
    return [LicenseFactory().make_from_string(text)] if text else None
