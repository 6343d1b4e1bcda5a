"""Lets this machine's kernel run programs of another architecture, with which images for that architecture are built.

The kernel hands such programs to an emulator that is registered in /proc/sys/fs/binfmt_misc. Debian's packages
qemu-user-static and binfmt-support bring the emulator and register it; in a container nobody has, so this is done here.
"""

import os
from pathlib import Path

from devcluster import processes
from devcluster.errors import DevclusterError

_REGISTRY = Path("/proc/sys/fs/binfmt_misc")
_EMULATED = {"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}
_REMEDY = "as root: apt-get install --yes --no-install-recommends qemu-user-static binfmt-support"


def ensure_emulation(architecture: str) -> None:
    """Make the kernel run programs of an architecture (`amd64`, `arm64`) that is not this machine's.

    Raises:
        DevclusterError: no emulator is installed, or it cannot be registered without root.
    """
    name = _EMULATED[architecture]
    entry = _REGISTRY / name
    if is_enabled(entry):
        return
    if os.geteuid() != 0 or not processes.exists("update-binfmts"):
        raise DevclusterError(f"this machine cannot run programs for {architecture}", remedy=_REMEDY)
    if not (_REGISTRY / "register").exists():
        processes.run(["mount", "-t", "binfmt_misc", "binfmt_misc", _REGISTRY], remedy="use a kernel with binfmt_misc")
    processes.run(["update-binfmts", "--enable", name], remedy=_REMEDY)
    if not is_enabled(entry):
        raise DevclusterError(f"the kernel does not run programs for {architecture}", remedy=_REMEDY)


def is_enabled(entry: Path) -> bool:
    """Return whether an emulator is registered and is also found from within images, which the flag F says."""
    if not entry.exists():
        return False
    lines = entry.read_text(encoding="ascii").splitlines()
    flags = next((line.removeprefix("flags:") for line in lines if line.startswith("flags:")), "")
    return "enabled" in lines and "F" in flags
