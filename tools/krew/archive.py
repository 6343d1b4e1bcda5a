"""Packs the kubectl plugin with its manifest into a directory: `python tools/krew/archive.py OUT_DIR`.

The archive depends on nothing but the files in it, so whoever packs the same release gets the same digest.
"""

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLUGIN = "kubectl-memory_index"
MANIFEST = HERE / "memory-index.yaml"
ARCHIVE = "memory-index.zip"


def archive() -> bytes:
    """Return the archive of the plugin and the licence, which are stored as they are and bear no date of their own."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, mode="w") as files:
        for path, mode in ((HERE / PLUGIN, 0o755), (ROOT / "LICENSE", 0o644)):
            entry = zipfile.ZipInfo(path.name)
            entry.create_system, entry.external_attr = 3, mode << 16  # Unix, whose modes are the upper half
            files.writestr(entry, path.read_bytes())
    return packed.getvalue()


def manifest(packed: bytes) -> str:
    """Return the manifest with the digest of an archive."""
    digest = hashlib.sha256(packed).hexdigest()
    return re.sub(r"sha256: [0-9a-f]{64}", f"sha256: {digest}", MANIFEST.read_text(encoding="utf-8"))


def main(directory: Path) -> None:
    """Write the archive and the manifest with its digest to a directory."""
    packed = archive()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ARCHIVE).write_bytes(packed)
    (directory / MANIFEST.name).write_text(manifest(packed), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
