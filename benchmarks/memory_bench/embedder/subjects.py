"""The measured programs of one run together."""

from dataclasses import dataclass

from memory_bench.embedder.over_http import HttpSubject
from memory_bench.embedder.subject import Subject


@dataclass(frozen=True, slots=True)
class Subjects:
    """The measured programs of a run, all of them started; `theirs` is llama-server, or None if it is not measured.

    `peers` are programs that compute by other means than llama.cpp, without HTTP; on a CPU our server on a file in
    eight bits is among them, since it is measured in the same way.
    """

    ours: HttpSubject
    theirs: HttpSubject | None
    in_process: tuple[Subject, ...]
    peers: tuple[Subject, ...]

    @property
    def servers(self) -> list[HttpSubject]:
        """The measured programs that are called over HTTP."""
        return [self.ours, *([self.theirs] if self.theirs else [])]

    @property
    def everyone(self) -> list[Subject]:
        """All measured programs."""
        return [*self.servers, *self.in_process, *self.peers]
