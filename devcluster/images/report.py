"""Reports the size and contents of each built image, and writes its bill of materials."""

from dataclasses import dataclass
from pathlib import Path

from devcluster.building.digests import sha256_of
from devcluster.images.contents import read_contents
from devcluster.images.installed import installed_items
from devcluster.images.materials import write_materials

_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class ImageReport:
    """Figures about an image; sizes are in bytes, uncompressed, and `digest` is the sha256 of the archive."""

    name: str
    archive: str
    digest: str
    layers: tuple[int, ...]
    size: int
    components: int
    sbom: str

    def lines(self) -> list[str]:
        """Return what is printed about the image."""
        layers = " + ".join(f"{layer / _MEGABYTE:.1f}" for layer in self.layers)
        return [
            self.name,
            f"  archive     {self.archive}",
            f"  digest      sha256:{self.digest}",
            f"  layers      {layers} MB",
            f"  size        {self.size / _MEGABYTE:.1f} MB",
            f"  components  {self.components}, listed in {self.sbom}",
        ]


def report_image(archive: Path, directory: Path) -> ImageReport:
    """Describe the image of an archive, and write its bill of materials below `directory`."""
    digest = sha256_of(archive)
    contents = read_contents(archive)
    items = installed_items(contents)
    target = directory / f"{_file_name(contents.name)}.cdx.json"
    directory.mkdir(parents=True, exist_ok=True)
    target.write_text(write_materials(contents, items, digest), encoding="utf-8")
    return ImageReport(
        contents.name, str(archive), digest, contents.layers, contents.size, components=len(items), sbom=str(target)
    )


def _file_name(image: str) -> str:
    """Return the name of an image's file: `memory-x` for `localhost/memory-x:dev`, `memory-x-cuda` for `:dev-cuda`."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    return name if tag == "dev" else f"{name}-{tag.removeprefix('dev-')}"
