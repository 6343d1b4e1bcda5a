"""Packs what a release has beside the images: the wheels, the chart, and the plugin of kubectl.

The same commit gives the same bytes: files bear the time of the commit, and lists are sorted.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from devcluster import processes
from devcluster.errors import DevclusterError
from devcluster.release.source import Source

_DISTRIBUTIONS = ("recall", "operator", "embedder-service")
_CHART = Path("charts") / "memory-index"
_PLUGIN = Path("tools") / "krew" / "archive.py"


def build_wheels(source: Source, directory: Path) -> list[Path]:
    """Build the wheels of the three distributions into a directory, and return their paths."""
    environment = {"SOURCE_DATE_EPOCH": str(source.committed)}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    packages = [source.root / name for name in _DISTRIBUTIONS]
    processes.run([*command, "--wheel-dir", directory, *packages], env=environment, remedy="make setup")
    return sorted(directory.glob("*.whl"))


def pack_chart(source: Source, directory: Path, images: Mapping[str, str], helm: Path) -> Path:
    """Pack the chart with the images that it installs by digest, and return the archive's path.

    `images` maps the repository in the chart's values (`localhost/memory-operator`) to `repository@sha256:...`.
    """
    with tempfile.TemporaryDirectory(prefix="chart-") as scratch:
        chart = Path(scratch) / _CHART.name
        shutil.copytree(source.root / _CHART, chart)
        write_images(chart, images)
        for path in chart.rglob("*"):
            os.utime(path, (source.committed, source.committed))
        processes.run([helm, "package", chart, "--destination", directory])
    (archive,) = directory.glob(f"{_CHART.name}-*.tgz")
    # helm writes this time into the manifest that it pushes.
    os.utime(archive, (source.committed, source.committed))
    return archive


def write_images(chart: Path, images: Mapping[str, str]) -> None:
    """Write these images into the directory of a chart, in place of those that a developer builds.

    Repositories stand in the values, digests in annotations: a digest in the values would win over a user's tag.

    Raises:
        DevclusterError: the chart does not name one of the images.
    """
    for developed, released in images.items():
        repository, _, digest = released.partition("@")
        annotation = f"memory-index.dev/digest-of-{developed.rpartition('/')[2]}:"
        _replace_once(chart / "values.yaml", f"repository: {developed}\n", f"repository: {repository}\n")
        _replace_once(chart / "Chart.yaml", f'{annotation} ""\n', f"{annotation} {digest}\n")


def _replace_once(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise DevclusterError(f"{path.name} does not say {before.strip()} once", remedy=f"restore {path.name} from git")
    path.write_text(text.replace(before, after), encoding="utf-8")


def pack_plugin(source: Source, directory: Path) -> list[Path]:
    """Pack the plugin of kubectl and its manifest into a directory, and return their paths."""
    processes.run([sys.executable, source.root / _PLUGIN, directory])
    return sorted(directory.iterdir())
