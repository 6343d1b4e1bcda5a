"""A URL that nobody can call is an invalid specification, and neither a failed reconcile nor a failed observation."""

from typing import Any

import pytest

from memory_operator.api.spec import InvalidSpecError, parse
from tests.unit.memory_operator.conftest import World
from tests.unit.memory_operator.test_operator_controller import Bench, bench

__all__ = ["bench"]  # the fixture
KINDS = pytest.mark.parametrize("kind", ["external", "source"])
INVALID = [
    "http://e:99999", "https://e:65536/v1", "http://e:0", "http://e:pass-word", "http://e:-1", "http://[pass-word]:80",
    "http://[fd00::1", "http://:80", "http://user:pass-word@e", "ftp://e", "e:80",
]  # fmt: skip


def with_url(kind: str, url: str) -> dict[str, Any]:
    """The specification of an external embedder, or of a model file, at this URL."""
    if kind == "external":
        return {"embedder": {"external": {"url": url}}}
    return {"embedding": {"source": {"http": {"url": url, "sha256": "a" * 64}}}}


@KINDS
@pytest.mark.parametrize("url", INVALID)
def test_a_url_whose_host_or_port_cannot_exist_is_refused_and_never_quoted(world: World, kind: str, url: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"\.url: ") as caught:
        parse(world.manifest(**with_url(kind, url)))
    assert "pass-word" not in str(caught.value)


@KINDS
@pytest.mark.parametrize("url", ["http://e", "http://e:", "https://e:65535/x", "http://[fd00::1]:8080", "http://e:1"])
def test_every_other_url_makes_a_plan(world: World, kind: str, url: str) -> None:
    assert world.decide(world.index(**with_url(kind, url))).status is not None


@KINDS
async def test_a_port_out_of_range_stalls_the_object_and_names_the_field(bench: Bench, kind: str) -> None:
    bench.api.index["spec"] |= with_url(kind, "http://e:99999")
    bench.api.index["spec"]["embedding"] |= {"model": "all-MiniLM-L6-v2"}
    await bench.reconcile(2)
    ready = bench.api.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert "url: " in ready["message"]
    assert bench.urls == []
