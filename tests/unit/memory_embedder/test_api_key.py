"""The API key that callers need: compared whole, read again when it rotates, missed aloud."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog.testing

from memory_embedder.errors import EmbedderError
from memory_embedder.http.guards import ApiKeys
from tests.unit.memory_embedder.conftest import Connect
from tests.unit.memory_embedder.conftest import MakeService as Make


@pytest.mark.promise("embedder-key-demanded")
async def test_the_whole_api_key_is_required_and_is_read_again_when_it_rotates(
    make_service: Make, tmp_path: Path, connect: Connect, connect_probe: Connect
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("one\n")
    service = make_service(api_key_file=key_file)
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:

        async def status(header: str | None) -> int:
            headers = {} if header is None else {"authorization": header.encode()}
            return (await client.post("/v1/embeddings", json={"input": "x"}, headers=headers)).status_code

        wrong = (None, "one", "Basic one", "Bearer two", "Bearer on", "Bearer ")
        assert [await status(header) for header in wrong] == [401] * len(wrong)
        assert await status("Bearer one") == 200
        assert (await client.get("/v1/models")).status_code == 401
        assert (await probe.get("/readyz")).status_code == 200
        key_file.unlink()
        key_file.write_text("two\n")
        assert [await status(h) for h in ("Bearer one", "Bearer two")] == [401, 200]
        key_file.unlink()
        assert await status("Bearer two") == 401
        key_file.write_text("drei-Schlüssel\n", encoding="utf-8")
        assert [await status(h) for h in ("Bearer drei-Schlüssel", "Bearer drei-Schlussel")] == [200, 401]
    service.close()


def test_a_file_may_hold_several_keys_which_tell_callers_apart(tmp_path: Path) -> None:
    """So an old key and a new one are accepted side by side while callers change to the new one."""
    path = tmp_path / "keys"
    path.write_text("one\n\n two \n")
    keys = ApiKeys(path)
    callers = [keys.check(f"Bearer {key}") for key in ("one", "two", "one")]
    assert callers[0] == callers[2] != callers[1]
    for wrong in ("Bearer one two", "Bearer one\n\n two", "Bearer "):
        with pytest.raises(EmbedderError):
            keys.check(wrong)


def test_more_keys_than_are_compared_are_said_aloud(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("\n".join(f"key-{number}" for number in range(300)))
    keys = ApiKeys(path)
    with structlog.testing.capture_logs() as logs:
        keys.check("Bearer key-255")
        with pytest.raises(EmbedderError):
            keys.check("Bearer key-256")
    assert ["too many" in log["event"] for log in logs] == [True]


@pytest.mark.parametrize("content", [None, " \n"], ids=["no file", "an empty file"])
def test_the_log_says_once_that_there_is_no_api_key(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    key = ApiKeys(path)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(EmbedderError):
                key.check("Bearer ")
        path.unlink(missing_ok=True)
        path.write_text("one")
        key.check("Bearer one")
        path.unlink()
        with pytest.raises(EmbedderError):
            key.check("Bearer one")
    assert ["every caller is refused" in log["event"] for log in logs] == [True, True]
