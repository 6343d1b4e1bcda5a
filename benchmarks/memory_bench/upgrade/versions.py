"""The images and the chart of the former version and of this checkout, between which an operator is upgraded."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import devcluster
from devcluster.cluster import Cluster
from devcluster.images.project import ProjectImages, build_former_images
from memory_bench.upgrade.former import LAST_COMMIT, archive


@dataclass(frozen=True)
class Versions:
    """The images of the former and of the present version, and the path of the former version's chart."""

    former: ProjectImages
    present: ProjectImages
    former_chart: Path


def prepare_former_images() -> None:
    """Build the former version's images unless they are cached, which takes minutes.

    Raises:
        HistoryMissing: the git history of this checkout does not contain the former commit.
    """
    with TemporaryDirectory() as directory:
        build_former_images(archive(LAST_COMMIT, Path(directory)), LAST_COMMIT)


def load_versions(cluster: Cluster, directory: Path) -> Versions:
    """Build the missing images and load all images into a cluster; write the former sources below `directory`.

    Raises:
        HistoryMissing: the git history of this checkout does not contain the former commit.
    """
    sources = archive(LAST_COMMIT, directory)
    archives = build_former_images(sources, LAST_COMMIT)
    for image_archive in archives.values():
        cluster.load(image_archive)
    return Versions(ProjectImages(*archives), devcluster.load_images(cluster), sources / "charts" / "memory-index")
