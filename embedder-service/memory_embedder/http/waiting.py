"""The connections to one port in the order in which they make room for others, by what the server waits for."""

from enum import IntEnum
from typing import Protocol


class Connection(Protocol):
    """A connection; `dropped` says whether it is closed at once or has been."""

    dropped: bool

    def drop(self) -> None:
        """Close the connection at once."""
        ...


class Step(IntEnum):
    """What the server waits for on a connection.

    When all connections are taken, connections are closed in the order of these values, except those with `NONE`.
    """

    HEAD = 0  # of a request, to be sent by the client
    BODY = 1  # of the request
    REQUEST = 2  # the next one, to be begun by the client
    ANSWER = 3  # to be read by the client
    NONE = 4  # nothing: this server computes the answer


class Waiting:
    """The connections to one port, in queues by what they wait for; the first in a queue has waited longest."""

    def __init__(self) -> None:
        self._by_step: dict[Step, dict[Connection, None]] = {step: {} for step in Step}

    def put(self, connection: Connection, old: Step, new: Step) -> None:
        """Move a connection from the queue of the step `old` to the end of the queue of the step `new`."""
        self._by_step[old].pop(connection, None)
        self._by_step[new][connection] = None

    def remove(self, connection: Connection, step: Step) -> None:
        """Remove a connection from the queue of the step `step`."""
        self._by_step[step].pop(connection, None)

    def first(self, newest: Connection) -> Connection:
        """Return the connection to close: the first one that waits for its client; if there is none, `newest`."""
        for step, connections in self._by_step.items():
            if step is not Step.NONE:
                for connection in connections:
                    if connection is not newest and not connection.dropped:
                        return connection
        return newest
