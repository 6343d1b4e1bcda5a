"""Describes what a release consists of, and keeps it as JSON beside the release's files."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "release.json"


@dataclass(frozen=True)
class Artifact:
    """One thing that is published.

    `reference` is the registry's name for it, with its tag, and `digest` (`sha256:...`) is that of its manifest.
    `platform` is `linux/amd64` or `linux/arm64`, empty for what has none, and `index` for an image's list of platforms.
    `file` is the archive that was published, relative to the directory of the release, empty for a list of platforms.
    """

    name: str
    reference: str
    digest: str
    platform: str = ""
    file: str = ""

    @property
    def by_digest(self) -> str:
        """The reference with the digest in place of the tag, by which it is signed and verified."""
        return f"{self.reference.rpartition(':')[0]}@{self.digest}"

    @property
    def key(self) -> str:
        """The name by which the artifact is compared with that of another build."""
        return " ".join(filter(None, (self.name, self.platform)))


@dataclass(frozen=True)
class Release:
    """A published release: its version, the commit that it was built from, the registry's prefix, and its parts."""

    version: str
    commit: str
    committed: int
    registry: str
    artifacts: tuple[Artifact, ...]

    def write(self, directory: Path) -> Path:
        """Write the release as JSON into its directory, and return the file's path."""
        target = directory / FILE
        target.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        return target

    @classmethod
    def read(cls, directory: Path) -> "Release":
        """Read the release that was written to a directory."""
        document = json.loads((directory / FILE).read_text(encoding="utf-8"))
        artifacts = tuple(Artifact(**entry) for entry in document.pop("artifacts"))
        return cls(**document, artifacts=artifacts)
