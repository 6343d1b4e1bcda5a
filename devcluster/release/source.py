"""Knows the commit that a release is built from; nothing that is not committed belongs into a release."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from devcluster import processes
from devcluster.errors import DevclusterError
from devcluster.release.version import check_version, read_version

_SECTION = re.compile(r"^## \[?(?P<version>[^\]\s]+)\]?.*$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A clean checkout: its directory, its commit with its time in Unix seconds, and the project's address."""

    root: Path
    commit: str
    committed: int
    address: str


def read_source(root: Path, version: str) -> Source:
    """Return the source of a release of this version.

    Raises:
        DevclusterError: files differ from the commit, the checkout is of another version, or nobody has written down
            what is new in it. All faults are named at once.
    """
    check_version(version)
    changed = processes.run(["git", "status", "--porcelain"], cwd=root).splitlines()
    faults = []
    if changed:
        faults.append(f"{len(changed)} files differ from the commit, such as {changed[0][3:]}: commit or remove them")
    present = read_version(root)
    if present != version:
        faults.append(f"the checkout is of version {present}: make version VERSION={version}, then commit")
    if not read_notes(root, version):
        faults.append(f"CHANGELOG.md has no section `## [{version}]` with text: write down what is new")
    if faults:
        raise DevclusterError("this checkout cannot be released", detail="\n".join(faults))
    commit, seconds = processes.run(["git", "log", "-1", "--format=%H %ct"], cwd=root).split()
    manifest = yaml.safe_load((root / "tools" / "krew" / "memory-index.yaml").read_text(encoding="utf-8"))
    return Source(root, commit, int(seconds), manifest["spec"]["homepage"])


def read_notes(root: Path, version: str) -> str:
    """Return the text of a version's section in CHANGELOG.md, or an empty string."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = list(_SECTION.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] == version:
            return text[heading.end() : following.start() if following else len(text)].strip()
    return ""
