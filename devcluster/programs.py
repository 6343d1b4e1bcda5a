"""Finding kubectl and helm: our own builds first, then what the machine has."""

import shutil

from devcluster.binaries import Binaries
from devcluster.errors import DevclusterError


class Programs:
    """Looks programs up in the built ones and in PATH."""

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries

    def find(self, name: str) -> str:
        """The path of a program."""
        try:
            return str(self._binaries.path(name))
        except DevclusterError:
            found = shutil.which(name)
            if found is None:
                raise
            return found

    def available(self, name: str) -> bool:
        """Whether it can be found."""
        try:
            self.find(name)
        except DevclusterError:
            return False
        return True
