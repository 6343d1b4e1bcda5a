"""Reads and writes the version of the project, which stands in several files because their formats demand it."""

import re
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevclusterError

VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?")
_NUMBER = r"(?P<version>\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)"


@dataclass(frozen=True)
class Place:
    """A file of the repository, and a regular expression in which `{version}` stands for the version."""

    path: str
    line: str

    def pattern(self) -> re.Pattern[str]:
        """Return the expression, whose group `version` is the version."""
        return re.compile(self.line.replace("{version}", _NUMBER), flags=re.MULTILINE)


PLACES = (
    Place("charts/memory-index/Chart.yaml", r"^version: {version}$"),
    Place("charts/memory-index/Chart.yaml", r"^appVersion: {version}$"),
    Place("recall/pyproject.toml", r'^version = "{version}"$'),
    Place("operator/pyproject.toml", r'^version = "{version}"$'),
    Place("embedder-service/pyproject.toml", r'^version = "{version}"$'),
    Place("embedder-service/memory_embedder/__init__.py", r'^__version__ = "{version}"$'),
    Place("Dockerfile.operator", r"^ARG VERSION={version}$"),
    Place("Dockerfile.embedder", r"^ARG VERSION={version}$"),
    Place("tools/krew/memory-index.yaml", r"^  version: v{version}$"),
    Place("tools/krew/memory-index.yaml", r"/releases/v{version}/"),
    Place("docs/gitops/argocd.yaml", r"targetRevision: {version}$"),
    Place("docs/gitops/flux.yaml", r"tag: {version}$"),
)


def read_version(root: Path) -> str:
    """Return the version that all places of a checkout agree on.

    Raises:
        DevclusterError: they disagree, or a place has none.
    """
    found = {place: _versions(root, place) for place in PLACES}
    versions = {version for versions in found.values() for version in versions}
    empty = sorted({place.path for place, versions in found.items() if not versions})
    if len(versions) == 1 and not empty:
        return versions.pop()
    lines = [f"{place.path}: {', '.join(sorted(set(found[place]))) or 'no version'}" for place in PLACES]
    raise DevclusterError(
        "the files of this checkout disagree about the version",
        detail="\n".join(lines),
        remedy="make version VERSION=X.Y.Z",
    )


def write_version(root: Path, version: str) -> list[str]:
    """Write a version at all places of a checkout; return the paths of the files that changed.

    Raises:
        DevclusterError: it is no version, or a place has none that could be replaced.
    """
    check_version(version)
    changed = []
    for path in dict.fromkeys(place.path for place in PLACES):
        text = before = (root / path).read_text(encoding="utf-8")
        for place in PLACES:
            if place.path == path:
                text = _replaced(place, text, version)
        if text != before:
            (root / path).write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def check_version(version: str) -> None:
    """Raise DevclusterError unless this is a semantic version without build metadata, such as 1.2.3 or 1.2.3-rc.1."""
    if VERSION.fullmatch(version) is None:
        raise DevclusterError(f"{version!r} is no version", remedy="give it as X.Y.Z or X.Y.Z-rc.1, without a v")


def _versions(root: Path, place: Place) -> list[str]:
    text = (root / place.path).read_text(encoding="utf-8")
    return [match["version"] for match in place.pattern().finditer(text)]


def _replaced(place: Place, text: str, version: str) -> str:
    def replace(match: re.Match[str]) -> str:
        whole, start = match.group(), match.start()
        return f"{whole[: match.start('version') - start]}{version}{whole[match.end('version') - start :]}"

    changed, count = place.pattern().subn(replace, text)
    if count == 0:
        raise DevclusterError(f"{place.path} has no version to replace", remedy=f"restore a line like {place.line}")
    return changed
