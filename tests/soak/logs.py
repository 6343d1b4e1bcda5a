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
        self._read: dict[Path, int] = {}
        self.found: set[str] = set()

    def read(self) -> None:
        """Read what was added since the last call. A file that became shorter is read from its beginning.

        What vanishes meanwhile is left out.
        """
        for directory, _, names in os.walk(self._directory):
            for path in (Path(directory) / name for name in names):
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        self._read_file(path)

    def _read_file(self, path: Path) -> None:
        size, begun = path.stat().st_size, self._read.get(path, 0)
        if size == begun:
            return
        with path.open("rb") as file:
            file.seek(max(0, begun - _CARRIED) if size > begun else 0)
            text = file.read()
            self._read[path] = file.tell()
        if MARKER.search(text):
            self.found.add(str(path.relative_to(self._directory)))
