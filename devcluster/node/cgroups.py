"""Creates the control group of a cluster's pods before kubelet starts, and removes it when the cluster has ended.

Both versions of control groups are supported. With version 1, a group has one directory in the hierarchy of each
controller. With version 2, it has a single directory.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
# Eight times the share of a process outside: tests beside the cluster's must not starve the pods that those wait for.
_PROCESSOR_SHARES = {"cpu.shares": "8192", "cpu.weight": "800"}
_RETRY_SECONDS = 0.1


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Return the directories in which a control group is created.

    Control groups of version 2 are created in `root` alone. Those of version 1 are created in the mounted hierarchy of
    each controller below `root`.
    """
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink() and entry.is_mount())


def create(name: str, root: Path = ROOT) -> None:
    """Create a control group in every hierarchy."""
    for hierarchy in hierarchies(root):
        _delegate(hierarchy)
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in _CPUSET_FILES:
            # In version 1 a cpuset without processors takes no process.
            if (hierarchy / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                (group / file).write_text((hierarchy / file).read_text(encoding="ascii"), encoding="ascii")
        for file, share in _PROCESSOR_SHARES.items():
            if (group / file).exists():
                (group / file).write_text(share, encoding="ascii")


def existing(name: str, root: Path = ROOT) -> list[Path]:
    """Return the directories of a control group that exist."""
    return [hierarchy / name for hierarchy in hierarchies(root) if (hierarchy / name).is_dir()]


def remove(name: str, *, seconds: float = 20.0, root: Path = ROOT) -> bool:
    """Remove a control group and all groups in it within `seconds`; return whether it is gone.

    Removal is retried, because the kernel releases ended processes after a delay.
    """
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
