"""Programs of an image for another architecture, run on this machine by the kernel's registered emulator."""

import shutil
from pathlib import Path

from devcluster.images.archives import layers_of

_REMOVED = ".wh."
# The mounts are in a namespace of the program alone: nobody who removes the directory can remove what is mounted there.
_ENTER = """
for path in proc dev tmp; do mkdir -p "$0/$path" && mount --bind "/$path" "$0/$path" || exit 1; done
exec chroot "$0" env PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin "$@"
"""


def unpack(archive: Path, directory: Path) -> list[str]:
    """Unpack an image, and return the beginning of a command line that runs a program of it, as root.

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
    return ["unshare", "--mount", "sh", "-c", _ENTER, str(directory)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
