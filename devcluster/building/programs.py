"""Finds kubectl and helm: first among the programs that devcluster has built, then in PATH."""

import shutil

from devcluster.building.binaries import Binaries
from devcluster.errors import DevclusterError


class Programs:
    """A finder of programs, which looks first among the programs that devcluster has built, then in PATH."""

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries

    def find(self, name: str) -> str:
        """Return the path of a program, or raise an error that says how to build it."""
        try:
            return str(self._binaries.path(name))
        except DevclusterError:
            found = shutil.which(name)
            if found is None:
                raise
            return found

    def available(self, name: str) -> bool:
        """Return whether a program can be found."""
        try:
            self.find(name)
        except DevclusterError:
            return False
        return True
