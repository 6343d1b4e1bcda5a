"""Keeps the state of a labelling in one file, which only its owner may read.

The whole file is replaced after every answer, so nothing is lost when the page is closed or the process dies. Two
processes that label the same file would overwrite each other's answers, so a process does not write a file that another
process has changed.
"""

from pathlib import Path

from pydantic import ValidationError

from memory_recall.contrib.labelling.labels import Labels
from memory_recall.errors import InvalidInput
from memory_recall.private_file import write_private_file

_Version = tuple[int, int]  # the inode and the time of the last change, which a replaced file does not share


class LabelFile:
    """The file of one labelling. `labels` is its present state.

    If the file does not exist yet, the state is empty and has the given `seed`. An existing file keeps its own seed.

    Raises:
        InvalidInput: the file cannot be read, or holds no valid state of a labelling.
    """

    def __init__(self, path: Path, *, seed: int = 0) -> None:
        self.path = path
        self._version = self._found()
        self.labels = Labels(seed=seed) if self._version is None else self._read()

    @property
    def exists(self) -> bool:
        """Whether the file has been written."""
        return self._version is not None

    def save(self, labels: Labels) -> None:
        """Write a new state to the disk, and make it the present one.

        Raises:
            InvalidInput: another process has changed the file, or it cannot be written.
        """
        if self._found() != self._version:
            raise InvalidInput(
                f"{self.path} was changed by another process, so this answer was not stored.",
                "End one of the two, and start this one again.",
            )
        write_private_file(self.path, labels.model_dump_json(exclude_defaults=False).encode() + b"\n")
        self._version = self._found()
        self.labels = labels

    def _found(self) -> _Version | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(type(error).__name__) from None
        return found.st_ino, found.st_mtime_ns

    def _read(self) -> Labels:
        try:
            return Labels.model_validate_json(self.path.read_bytes())
        except OSError as error:
            raise self._unreadable(type(error).__name__) from None
        except ValidationError:  # its message quotes what it was given
            raise self._unreadable("it is no state of a labelling") from None

    def _unreadable(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"The labels in {self.path} cannot be read ({why}).", "Name a file that memory questions collect has made."
        )
