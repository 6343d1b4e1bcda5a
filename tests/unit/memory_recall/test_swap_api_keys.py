"""Which API key the embedders of a swap get: each host the one that is meant for it."""

from pathlib import Path
from typing import Any

import pytest

from memory_recall.embedding import external_client
from memory_recall.embedding.api_key import ApiKey
from memory_recall.embedding.client import EmbedderClient
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.settings import EmbedderSettings, Settings
from memory_recall.swap import service
from memory_recall.swap.embedders import NextEmbedder, active_embedder, connector_of
from tests.support.invoked_command import invoke_memory

CONFIGURED, FOLLOWING = "http://a.one.svc:9000", "http://b.two.svc:9000"
OURS, THEIRS = Path("configured-key"), Path("next-key")


class Opened(EmbedderClient):
    """A client that remembers which key it was given."""

    def __init__(self, base_url: str, model: str | None = None, api_key: ApiKey | None = None, **options: Any) -> None:
        super().__init__(base_url, model, api_key, **options)
        self.key = api_key


@pytest.fixture(autouse=True)
def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_client, "EmbedderClient", Opened)


def settings() -> Settings:
    return Settings(model="m1", embedder=EmbedderSettings(url=CONFIGURED, api_key_file=OURS))


def recorded(url: str | None) -> RecordedModel:
    return RecordedModel(1, "m1", None, 384, url)


@pytest.mark.parametrize("key", [THEIRS, None], ids=["another key", "no key"])
@pytest.mark.parametrize("following", [FOLLOWING, "http://a.one.svc:9001"], ids=["another host", "the same host"])
async def test_the_next_models_embedder_and_the_active_ones_get_no_key_but_their_own(
    key: Path | None, following: str
) -> None:
    next_one = NextEmbedder("m2", following, None, key)
    async with next_one.connect(settings()) as client:
        assert (client.base_url, client.key) == (following, key)  # type: ignore[union-attr]
    for url in (CONFIGURED, None, "http://elsewhere.three.svc:80"):
        async with active_embedder(settings(), next_one, recorded(url)) as client:
            assert (client.base_url, client.key) == (CONFIGURED, OURS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://b.two.svc:9001", THEIRS), ("http://c.two.svc:9000", None), ("http://a.one.svc:9001", OURS)],
    ids=["the next host", "its neighbour", "the configured host"],
)
async def test_an_address_that_the_database_names_gets_the_key_of_its_host_or_none(url: str, key: Path | None) -> None:
    next_one = NextEmbedder("m2", FOLLOWING, None, THEIRS)
    async with connector_of(settings(), next_one)(url, "m2") as client:
        assert client.key == key  # type: ignore[union-attr]
    async with active_embedder(settings(), next_one, recorded(url)) as active:
        assert (active.base_url, active.key) == (url, key)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "key"),
    [([], OURS), (["--api-key-file", str(THEIRS)], THEIRS), (["--without-api-key"], None)],
    ids=["by default the configured one", "another one", "none"],
)
@pytest.mark.parametrize("command", ["plan", "start", "rollback"])
def test_the_command_line_says_which_key_the_other_embedder_gets(
    command: str, options: list[str], key: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path | None] = []

    async def called(_settings: Settings, following: Any = None, **named: Any) -> dict[str, Any]:
        given.append(following.api_key_file if following else named["api_key_file"])
        return {}

    for name in ("plan", "start", "roll_back"):
        monkeypatch.setattr(service, name, called)
    monkeypatch.setenv("MEMORY_DATABASE_URL", "postgresql://u@h/d")
    monkeypatch.setenv("MEMORY_EMBEDDER_API_KEY_FILE", str(OURS))
    model = [] if command == "rollback" else ["--model", "m2"]
    gate = ["--without-gate"] if command == "start" else []
    shown = invoke_memory(["swap", command, *model, "--url", FOLLOWING, *gate, *options, "--json"])
    assert (shown.exit_code, given) == (0, [key]), shown.output


def test_a_key_and_none_at_once_are_refused() -> None:
    options = ["--url", FOLLOWING, "--api-key-file", "k", "--without-api-key"]
    shown = invoke_memory(["swap", "start", "--model", "m2", "--without-gate", *options])
    assert shown.exit_code == 2
