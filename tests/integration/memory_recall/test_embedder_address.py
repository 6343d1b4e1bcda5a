"""A password in the embedder's address is printed by no command and stored nowhere."""

import asyncio
import os
import sys

import pytest

from tests.integration.memory_recall.workbench import Workbench

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
    environment = {**os.environ, **bench.environment(MEMORY_EMBEDDER_URL=ADDRESS)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", *arguments, "--json",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 2, errors
    assert b"InvalidConfiguration" in errors
    assert b"CANARY" not in output + errors
    assert "CANARY" not in await bench.value("SELECT string_agg(to_jsonb(m)::text, '') FROM memory_index_models m")
