"""Programs of an image for another architecture, run on this machine by the kernel's registered emulator."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devcluster import processes
from devcluster.images.archives import layers_of

_REMOVED = ".wh."
_MOUNTED = ("/proc", "/dev", "/tmp")  # noqa: S108  (where the caller's files are)
_PATH = "PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"


@contextmanager
def unpacked(archive: Path, directory: Path) -> Iterator[list[str]]:
    """Unpack an image, and yield the beginning of a command line that runs a program of it, as root.

    The program has this machine's /proc, /dev, /tmp and network, and gets signals as any process.
    """
    directory.mkdir()
    for layer in layers_of(archive):
        for entry in layer:
            target = directory / entry.name
            if target.name.startswith(_REMOVED):
                _remove(target.with_name(target.name.removeprefix(_REMOVED)))
            else:
                layer.extract(entry, directory, filter="fully_trusted")
    with ExitStack() as mounts:
        for path in _MOUNTED:
            target = directory / path.lstrip("/")
            target.mkdir(exist_ok=True)
            processes.run(["mount", "--bind", path, target])
            mounts.callback(processes.run, ["umount", target])
        yield ["chroot", str(directory), "env", _PATH]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
