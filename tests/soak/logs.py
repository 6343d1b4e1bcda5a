"""Reads logs as they grow, since those of a pod go with it, and names the files that hold a text of a memory."""

import os
from contextlib import suppress
from pathlib import Path

from tests.soak.ledger import MARKER

_CARRIED = 32  # bytes that are read again, since a marker may have been half written


class Logs:
    """All files below a directory; `found` are those in which a marker was seen, also after they are gone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[tuple[Path, int], int] = {}  # by path and inode, since a file may be replaced
        self.found: set[str] = set()

    def read(self) -> set[str]:
        """Read what was added since the last call, and return the files in which a marker was seen for the first time.

        A file that became shorter or was replaced is read from its beginning. What vanishes meanwhile is left out.
        """
        before = set(self.found)
        for directory, _, names in os.walk(self._directory):
            for path in (Path(directory) / name for name in names):
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        self._read_file(path)
        return self.found - before

    def _read_file(self, path: Path) -> None:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            size, known = status.st_size, (path, status.st_ino)
            begun = self._read.get(known, 0)
            if size == begun:
                return
            file.seek(max(0, begun - _CARRIED) if size > begun else 0)
            text = file.read()
            self._read[known] = file.tell()
        if MARKER.search(text):
            self.found.add(str(path.relative_to(self._directory)))
