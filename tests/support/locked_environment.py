"""Virtual environments of the packages of one lock file, kept in the cache and made once."""

import sys
from pathlib import Path

from devcluster import processes
from devcluster.building.digests import sha256_of
from devcluster.settings import Settings


def locked_environment(settings: Settings, name: str, lock: Path) -> Path:
    """Return the interpreter of the environment called `name` with the packages of a lock; it is made if missing."""
    directory = settings.cache_dir / name / sha256_of(lock)[:16]
    python, ready = directory / "bin" / "python", directory / ".ready"
    if not ready.exists():
        uv = str(Path(sys.executable).with_name("uv"))
        processes.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)])
        install = ["pip", "install", "--quiet", "--require-hashes", "-r", str(lock)]
        processes.run([uv, *install, "--python", str(python)])
        ready.touch()
    return python
