"""The control group that one cluster's pods live in: made before kubelet starts, removed when everything has ended.

Works for both versions of the interface: with version 1 there is one directory per controller, with version 2 one in
all.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
_RETRY_SECONDS = 0.1


def hierarchies(root: Path = ROOT) -> list[Path]:
    """List the directories in which a group is made: the root (version 2) or every controller mounted below it."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink() and entry.is_mount())


def create(name: str, root: Path = ROOT) -> None:
    """Make the group."""
    for hierarchy in hierarchies(root):
        _delegate(hierarchy)
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in _CPUSET_FILES:
            # In version 1 a cpuset without processors takes no process.
            if (hierarchy / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                (group / file).write_text((hierarchy / file).read_text(encoding="ascii"), encoding="ascii")


def existing(name: str, root: Path = ROOT) -> list[Path]:
    """List the group's directories that exist."""
    return [hierarchy / name for hierarchy in hierarchies(root) if (hierarchy / name).is_dir()]


def remove(name: str, *, seconds: float = 20.0, root: Path = ROOT) -> bool:
    """Remove the group and all below it, with retries until the kernel has released ended processes."""
    deadline = time.monotonic() + seconds
    while left := existing(name, root):
        for group in left:
            _remove_tree(group)
        if time.monotonic() > deadline:
            return not existing(name, root)
        time.sleep(_RETRY_SECONDS)
    return True


def _remove_tree(group: Path) -> None:
    for directory, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()


def _delegate(hierarchy: Path) -> None:
    controllers = hierarchy / "cgroup.controllers"
    if not controllers.exists():
        return
    for controller in controllers.read_text(encoding="ascii").split():
        # A container's own root cannot delegate while processes are in it; kubelet then names the missing controller.
        with suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
