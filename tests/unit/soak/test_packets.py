"""Markers in packets are found whole, once, and belong to the request that began before them."""

from tests.soak.packets import OBSERVERS_AGENT, Connection, Requests

HERE: Connection = (b"\x0a\xf4\0\1", 40000, b"\x0a\xf4\0\2")
FIRST, SECOND = "zq00000000000001", "zq00000000000002"


def taken(*packets: tuple[int, bytes, float]) -> list[tuple[str, float]]:
    """Return what is seen of packets of one connection: place in the connection, payload, and time."""
    seen: list[tuple[str, float]] = []
    requests = Requests(lambda marker, began: seen.append((marker, began)))
    for sequence, payload, at in packets:
        requests.take(HERE, sequence, payload, at)
    return seen


def test_a_marker_belongs_to_the_request_that_it_is_in() -> None:
    first, second = b"POST / " + FIRST.encode(), b"POST / " + SECOND.encode()
    assert taken((0, first, 1.0), (len(first), second, 2.0)) == [(FIRST, 1.0), (SECOND, 2.0)]


def test_a_body_in_later_packets_belongs_to_the_request_that_began_before() -> None:
    assert taken((0, b"POST / ", 1.0), (7, b"[" + FIRST.encode(), 5.0)) == [(FIRST, 1.0)]


def test_a_marker_that_is_divided_between_two_packets_is_found() -> None:
    text = b"POST / " + FIRST.encode()
    assert taken((0, text[:12], 1.0), (12, text[12:], 1.1)) == [(FIRST, 1.0)]


def test_a_packet_that_is_seen_on_several_interfaces_counts_once_and_begins_no_request_anew() -> None:
    text = b"POST / " + FIRST.encode()
    assert taken((0, text, 1.0), (0, text, 1.2), (len(text), b" more " + SECOND.encode(), 1.3)) == [
        (FIRST, 1.0), (SECOND, 1.0),
    ]  # fmt: skip


def test_a_request_that_is_repeated_behind_a_translated_address_began_when_it_was_first_sent() -> None:
    """As where it was lost between the two, and a memory became sensitive before TCP repeated it."""
    seen: list[tuple[str, float]] = []
    requests = Requests(lambda marker, began: seen.append((marker, began)))
    header, body = b"POST / ", b"[" + FIRST.encode()
    service, pod = HERE, (*HERE[:2], b"\x0a\xf4\0\x09")
    for connection, at in ((service, 1.0), (pod, 13.6)):
        requests.take(connection, 700, header, at)
        requests.take(connection, 707, body, at + 0.1)
    requests.take(pod, 800, header + body, 14.0)
    assert seen == [(FIRST, 1.0), (FIRST, 1.0), (FIRST, 14.0)]


def test_what_the_observer_itself_asks_is_left_out_and_what_follows_on_the_same_ports_is_not() -> None:
    """It embeds texts that it has read some time ago, by which no memory leaks that had not."""
    own = f"POST / HTTP/1.1\r\nHost: x\r\nUser-Agent: {OBSERVERS_AGENT}\r\n\r\n[{FIRST}".encode()
    end, other = len(own), f"POST / HTTP/1.1\r\nUser-Agent: python\r\n\r\n[{FIRST}]".encode()
    assert taken((0, own, 1.0), (end, SECOND.encode(), 1.1), (end + 16, other, 2.0)) == [(FIRST, 2.0)]


def test_sequence_numbers_that_begin_again_at_zero_are_in_order() -> None:
    text = b"POST / " + b"." * 16
    assert taken((2**32 - 23, text, 1.0), (0, b"POST / " + FIRST.encode(), 2.0)) == [(FIRST, 2.0)]
