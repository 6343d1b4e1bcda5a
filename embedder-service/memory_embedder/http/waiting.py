"""The connections to one port in the order in which they make room for others, by what the server waits for."""

from enum import IntEnum
from typing import Protocol


class Connection(Protocol):
    """A connection; `dropped` says whether it is closed at once or has been."""

    dropped: bool

    def make_room(self) -> None:
        """Give the connection's place to another one."""
        ...

    def has_held(self, now: float, seconds: float) -> bool:
        """Return whether the connection has waited for the same for so many seconds."""
        ...


class Step(IntEnum):
    """What the server waits for on a connection: something that the client must do, or nothing (`NONE`).

    With `HEAD`, the server waits until the client has sent the head of a request; with `BODY`, until the client has
    sent the body of the request; with `REQUEST`, until the client begins the next request; with `ANSWER`, until the
    client reads the answer. With `NONE`, this server has to act: it computes the answer.

    When all connections are taken, they make room in the order of these values: first those that wait for a `HEAD`,
    last those that wait for an `ANSWER` to be read. A connection with `NONE` makes none.
    """

    HEAD = 0  # of a request, to be sent by the client
    BODY = 1  # of the request
    REQUEST = 2  # the next one, to be begun by the client
    ANSWER = 3  # to be read by the client
    NONE = 4  # nothing: this server computes the answer


class Waiting:
    """The connections to one port, in queues by what they wait for.

    There is one queue each for connections that wait for a head, a body, a next request, a client that reads its
    answer, and this server. The connection that has waited longest is the first in its queue.
    """

    def __init__(self) -> None:
        self._by_step: dict[Step, dict[Connection, None]] = {step: {} for step in Step}

    def put(self, connection: Connection, old: Step, new: Step) -> None:
        """Move a connection from the queue of the step `old` to the end of the queue of the step `new`."""
        self._by_step[old].pop(connection, None)
        self._by_step[new][connection] = None

    def remove(self, connection: Connection, step: Step) -> None:
        """Remove a connection from the queue of the step `step`."""
        self._by_step[step].pop(connection, None)

    def longest(self, now: float, seconds: float) -> Connection | None:
        """Return the first connection that has waited for its client for so many seconds; None if there is none."""
        for step, connections in self._by_step.items():
            if step is not Step.NONE:
                first = next((one for one in connections if not one.dropped), None)  # each queue begins with its oldest
                if first is not None and first.has_held(now, seconds):
                    return first
        return None
