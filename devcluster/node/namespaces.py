"""Sets up mounts, name resolution and network of a node's namespaces. The init process runs these functions."""

import shutil
import socket
import subprocess
from pathlib import Path

from devcluster.node.layout import INSIDE, NODE_ADDRESS, NODE_NAME, Layout

# Written to at fixed paths by kubelet (device-plugins, symbolic links to logs) and the CNI library (its cache).
_WRITTEN_DIRECTORIES = ("/var/lib", "/var/log")


def mount_private(root: Path) -> None:
    """Mount a private /run with the cluster's state directory at a fixed path in it."""
    _run("mount", "--make-rprivate", "/")
    # Bound aside first, so that a state directory below /run is still reachable when /run is covered.
    _run("mount", "--bind", str(root), "/mnt")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    INSIDE.mkdir()
    _run("mount", "--move", "/mnt", str(INSIDE))
    for directory in _WRITTEN_DIRECTORIES:
        _mount_overlay(directory)


def _mount_overlay(directory: str) -> None:
    """Keep all writes to a directory in memory, by an overlay mount that shows the directory's present content."""
    upper, work = (INSIDE.parent / "covers" / directory.strip("/") / part for part in ("upper", "work"))
    upper.mkdir(parents=True)
    work.mkdir()
    _run("mount", "-t", "overlay", "-o", f"lowerdir={directory},upperdir={upper},workdir={work}", "overlay", directory)


def mount_name_resolution(layout: Layout) -> None:
    """Mount resolv.conf and hosts files, so that programs in these namespaces resolve names of Services."""
    for name in ("resolv.conf", "hosts"):
        target = Path("/etc", name).resolve()
        if not target.exists():
            # A resolver's link into /run, which is covered now.
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _run("mount", "--bind", str(layout.config / name), str(target))


def snapshotter(directory: Path) -> str:
    """Return the containerd snapshotter to use: `overlayfs` if the file system supports overlays, else `native`."""
    scratch = directory / "overlay-trial"
    for name in ("lower", "upper", "work", "merged"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
    tried = subprocess.run(
        ["mount", "-t", "overlay", "-o", options, "overlay", str(scratch / "merged")], capture_output=True, check=False
    )
    if tried.returncode == 0:
        _run("umount", str(scratch / "merged"))
    shutil.rmtree(scratch, ignore_errors=True)
    return "overlayfs" if tried.returncode == 0 else "native"


def build_network() -> None:
    """Create a bridge with the node's address, and a default route that keeps Service traffic inside the namespaces."""
    socket.sethostname(NODE_NAME)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "cni0", "type", "bridge")
    _run("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "cni0")
    _run("ip", "link", "set", "cni0", "up")
    _run("ip", "route", "add", "default", "dev", "cni0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


def prepare_volumes(directory: Path, count: int) -> None:
    """Create `count` directories for the node's PersistentVolumes."""
    for index in range(count):
        (directory / f"pv-{index:02}").mkdir(parents=True, exist_ok=True)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
