"""A password in the embedder's address is printed by no command and stored nowhere."""

import pytest

from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory

ADDRESS = "http://svc:pass-CANARY@127.0.0.1:9"


@pytest.mark.finding("M8")
@pytest.mark.parametrize(
    "arguments",
    [
        ("backfill",),
        ("sync",),
        ("recall", "x", "--everyone"),
        ("swap", "start", "--model", "another", "--url", ADDRESS, "--without-gate"),
    ],
    ids=" ".join,
)
async def test_an_address_with_user_information_ends_every_command(
    bench: Workbench, arguments: tuple[str, ...]
) -> None:
    """As a configuration that cannot be used; the models' addresses are readable to everybody who recalls."""
    ended = await run_memory([*arguments, "--json"], bench.environment(MEMORY_EMBEDDER_URL=ADDRESS))
    assert ended.status == 2, ended.errors
    assert b"InvalidConfiguration" in ended.errors
    assert b"CANARY" not in ended.output + ended.errors
    assert "CANARY" not in await bench.value("SELECT string_agg(to_jsonb(m)::text, '') FROM memory_index_models m")
