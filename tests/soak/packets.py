"""Reads every packet to an embedder's port on a machine, and says which memories' texts were in which request.

Nothing of the sender or the receiver is asked, and requests of the observer itself are left out. A request begins with
the packet whose payload begins with its method; what follows on the same connection belongs to it. Only IPv4 without
encryption is understood.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from ctypes import addressof, c_char, sizeof
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.soak.ledger import MARKER

_SO_ATTACH_FILTER = 26
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_ALL_PROTOCOLS = 3
_RECEIVE_BYTES = 1 << 24
_LARGEST_PACKET = 1 << 17
_CARRIED = 32  # bytes of the packet before, since a marker may be divided between two
_CONNECTIONS = 4096  # that are remembered
_METHODS = (b"POST ", b"GET ")
_WAIT_SECONDS = 0.5
OBSERVERS_AGENT = "soak-observer"
"""By this agent the observer marks requests of its own, with texts that it has read from rows, which are left out."""
_OWN = f"user-agent: {OBSERVERS_AGENT}\r\n".encode()
_SEQUENCES = 1 << 32
_SYN = 2

Connection = tuple[bytes, int, bytes]
Sighting = Callable[[str, float], None]
"""Is called with a marker and the time at which its request began."""


def _filter(port: int) -> bytes:
    """Return the kernel's program that lets TCP packets to a port through, for Ethernet and IPv4.

    Its instructions are those of the Berkeley Packet Filter: (operation, jump if true, jump if false, operand).
    """
    program = [
        (0x28, 0, 0, 12),  # load the type of the frame
        (0x15, 0, 8, 0x0800),  # IPv4
        (0x30, 0, 0, 23),  # load the protocol
        (0x15, 0, 6, 6),  # TCP
        (0x28, 0, 0, 20),  # load flags and fragment offset
        (0x45, 4, 0, 0x1FFF),  # no fragment after the first
        (0xB1, 0, 0, 14),  # load the length of the IP header
        (0x48, 0, 0, 16),  # load the port of destination
        (0x15, 0, 1, port),
        (0x06, 0, 0, 0x40000),  # accept
        (0x06, 0, 0, 0),  # drop
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


class Requests:
    """Divides packets into requests, and remembers of each connection when its request began.

    `sighted` is called once for each marker of a request. A request to a Service is seen a second time once its address
    has been translated into a pod's; if it was lost between, only when TCP repeats it. It began the first time: sender,
    port and place in the connection stay the same.
    """

    def __init__(self, sighted: Sighting) -> None:
        self._sighted = sighted
        self._open: dict[Connection, _Request] = {}
        self._began: dict[tuple[bytes, int, int], float] = {}

    def take(self, connection: Connection, sequence: int, payload: bytes, at: float) -> None:
        """Take one packet's payload and its place in the connection; what has been seen before is left out."""
        request = self._open.get(connection)
        if request is not None and _is_before(sequence, request.next):
            return  # the same packet on the next interface, or a repetition
        if request is None or payload.startswith(_METHODS):
            self._open.pop(connection, None)
            _forget_oldest(self._open)
            _forget_oldest(self._began)
            began = self._began.setdefault((*connection[:2], sequence), at)
            request = self._open[connection] = _Request(began, own=_OWN in payload.lower())
        for marker in MARKER.findall(request.carried + payload):
            if marker not in request.seen and not request.own:
                request.seen.add(marker)
                self._sighted(marker.decode(), request.began)
        request.carried = (request.carried + payload)[-_CARRIED:]
        request.next = (sequence + len(payload)) % _SEQUENCES

    def opened(self, connection: Connection) -> None:
        """Forget a connection, since another begins between the same two ends."""
        self._open.pop(connection, None)


@dataclass(slots=True)
class _Request:
    began: float
    own: bool
    carried: bytes = b""
    next: int = 0
    seen: set[bytes] = field(default_factory=set)


def _forget_oldest(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= _CONNECTIONS:
        del remembered[next(iter(remembered))]


def _is_before(sequence: int, expected: int) -> bool:
    return 0 < (expected - sequence) % _SEQUENCES < _SEQUENCES // 2


class Watch:
    """Watches the packets to a port in the network that this process is in, in a thread, until the `with` block ends.

    Afterwards `missed` is how many packets the kernel dropped because they were not read in time.
    """

    def __init__(self, port: int, sighted: Sighting) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        program = _filter(port)
        buffer = (c_char * len(program)).from_buffer_copy(program)
        self._socket.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", sizeof(buffer) // 8, addressof(buffer))
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self._socket.settimeout(_WAIT_SECONDS)
        self._requests = Requests(sighted)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="wire")
        self.missed = 0
        self.failure: BaseException | None = None
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        _, self.missed = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._socket.close()
        if self.failure is not None:
            raise self.failure

    def _read(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    packet = self._socket.recv(_LARGEST_PACKET)
                except TimeoutError:
                    continue
                self._record(packet, time.monotonic())
        except BaseException as failure:  # noqa: BLE001 - raised again at the end of the block
            self.failure = failure

    def _record(self, packet: bytes, at: float) -> None:
        header = (packet[14] & 15) * 4
        tcp = 14 + header
        length = int.from_bytes(packet[16:18], "big")
        end = 14 + length if length else len(packet)  # of segments that are divided later, the length may be absent
        payload = packet[tcp + (packet[tcp + 12] >> 4) * 4 : end]
        connection = (packet[26:30], int.from_bytes(packet[tcp : tcp + 2], "big"), packet[30:34])
        if packet[tcp + 13] & _SYN:
            self._requests.opened(connection)
        elif payload:
            sequence = int.from_bytes(packet[tcp + 4 : tcp + 8], "big")
            self._requests.take(connection, sequence, payload, at)
