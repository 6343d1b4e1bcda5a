"""Where texts and the API key may go: as the configuration says, and nearby as the database says."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from memory_recall.embedding import external_client, following
from memory_recall.embedding.address_policy import is_beyond_cluster, is_trusted_embedder_url, may_receive_texts
from memory_recall.embedding.api_key import ApiKey
from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.errors import InvalidConfiguration
from memory_recall.indexing import embedders
from memory_recall.indexing.embedders import connector
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.settings import DatabaseSettings, EmbedderSettings, Settings
from tests.support.voyage import voyage_client

KEY = "key-CANARY"
KEY_FILE = Path("api-key")


@pytest.mark.promise("addresses-from-the-database")
@pytest.mark.finding("L8")
@pytest.mark.parametrize(
    ("configured", "named", "follows"),
    [
        ("http://mem-embedder.team.svc:8080", "http://mem-embedder-next.team.svc:8080", True),
        ("http://mem-embedder:8080", "http://mem-embedder-next:8080", True),
        ("http://a.team.svc.cluster.local", "http://b.team.svc.cluster.local", True),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8081", True),
        ("http://embedder.example.org", "http://embedder.example.org:9000", True),
        ("http://mem-embedder.team.svc:8080", "http://mem-embedder.other.svc:8080", False),
        ("http://mem-embedder.team.svc:8080", "http://evil.example.org", False),
        ("http://embedder.example.org", "http://evil.org", False),
        ("http://embedder.example.org", "http://other.example.org", False),
        ("http://embedder.co.uk", "http://evil.co.uk", False),
        ("http://embedder.svc.co.uk", "http://evil.svc.co.uk", False),
        ("http://mem-embedder:8080", "http://2130706433:8080", False),
        ("http://mem-embedder:8080", "http://0x7f000001:8080", False),
        ("http://mem-embedder:8080", "http://[::1]:8080", False),
        ("http://mem-embedder:8080", "http://ai.:8080", False),
        ("http://127.0.0.1:8080", "http://127.0.0.2:8080", False),
        ("http://mem-embedder:8080", "http://10.0.0.7:8080", False),
        ("https://a.team.svc", "http://b.team.svc", False),
        ("http://a.team.svc", "http://user@b.team.svc", False),
        ("http://a.team.svc", "file:///etc/passwd", False),
        ("http://a.team.svc", "http://b.team.svc:99999", False),
        ("http://localhost:8080", "http://mem-embedder:8080", False),
        ("http://mem-embedder:8080", "http://localhost:9000", False),
    ],
)
def test_texts_are_sent_to_trusted_addresses_only(configured: str, named: str, follows: bool) -> None:
    """The database may name an address, but not any address."""
    assert is_trusted_embedder_url(configured, named) is follows
    trusted = is_trusted_embedder_url(configured, "http://far.example.com:1", ["far.example.com"])
    assert trusted is configured.startswith("http:"), "a trusted host does not replace TLS"
    assert is_trusted_embedder_url(configured, "https://far.example.com:1", ["far.example.com"])


@pytest.mark.parametrize(
    ("host", "beyond"),
    [
        ("127.0.0.1", False), ("[::1]", False), ("[::ffff:127.0.0.1]", False), ("[::ffff:7f00:1]", False),
        ("10.0.0.7", False), ("[fd00::7]", False), ("[::ffff:10.0.0.7]", False), ("[FD00::7]", False),
        ("93.184.216.34", True), ("[2001:db8::1]", True), ("[::ffff:93.184.216.34]", True),
        ("169.254.169.254", True), ("[fe80::1]", True), ("[::ffff:169.254.169.254]", True),
        ("[fd00:ec2::254]", True), ("[fd20:ce::254]", True), ("[fd00:ec2:0::254]", True), ("[64:ff9b::10.0.0.7]", True),
    ],
)  # fmt: skip
def test_an_address_of_ipv6_is_near_where_its_kin_of_ipv4_is(host: str, beyond: bool) -> None:
    """Links and metadata services are not: texts go there neither without consent nor without TLS."""
    assert is_beyond_cluster(f"http://{host}:8080") is beyond
    assert may_receive_texts(f"http://{host}:8080", egress=True) is not beyond
    assert may_receive_texts(f"https://{host}:8443", egress=False) is not beyond


class Opened(EmbedderClient):
    """A client that remembers which key it was given."""

    def __init__(self, base_url: str, model: str | None = None, api_key: ApiKey | None = None, **options: Any) -> None:
        super().__init__(base_url, model, api_key, **options)
        self.key = api_key


KEYS = [
    ("http://a.team.svc:8080", (), "http://a.team.svc:9000", KEY),
    ("http://a.team.svc:8080", (), "http://b.team.svc:8080", None),
    ("http://a.team.svc:8080", ("b.team.svc",), "http://b.team.svc:8080", KEY),
    ("http://a:8080", (), "http://b:8080", None),
    ("https://a.example.org", ("b.example.org",), "https://b.example.org", KEY),
]


@pytest.mark.promise("addresses-from-the-database")
@pytest.mark.finding("L8")
@pytest.mark.parametrize(("configured", "trusted", "named", "key"), KEYS)
async def test_a_recall_sends_the_api_key_only_to_hosts_that_the_configuration_names(
    configured: str, trusted: tuple[str, ...], named: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Service that the database names gets texts, but no key."""
    monkeypatch.setattr(following, "EmbedderClient", Opened)
    embedder = FollowingEmbedder(configured, "tiny", KEY, query_egress=True, trusted_hosts=trusted)
    assert embedder.follow("next", named, embedder.current, failed=False)
    current: Any = embedder.current
    assert (current.base_url, current.key) == (named, key)
    await embedder.close()


@pytest.mark.parametrize(("configured", "trusted", "named", "key"), KEYS)
async def test_a_worker_sends_the_api_key_only_to_hosts_that_its_settings_name(
    configured: str, trusted: tuple[str, ...], named: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_client, "EmbedderClient", Opened)
    embedder = EmbedderSettings(url=configured, api_key_file=KEY_FILE, trusted_hosts=",".join(trusted))
    database = DatabaseSettings(url=SecretStr("postgresql://u@h/d"))
    settings = Settings(database=database, embedder=embedder, query_egress="allowed")
    keys: list[ApiKey | None] = []
    monkeypatch.setattr(embedders, "guarded", lambda _settings, client, _listener: keys.append(client.key))
    connector(settings, LogProgress(WorkerMetrics(), worker="sync"))(named, "next")
    assert keys == [KEY_FILE if key else None]


@pytest.mark.parametrize("address", ["http://svc:pass-CANARY@host:8080", "https://pass-CANARY@host", "http://a@[::1]"])
@pytest.mark.parametrize(
    "connect",
    [
        EmbedderClient,
        HttpEmbedder,
        FollowingEmbedder,
        lambda url: voyage_client("voyage-3.5", 8, KEY, base_url=url),
    ],
)
def test_an_address_with_user_information_is_refused_and_not_repeated(connect: Any, address: str) -> None:
    """It would be printed in errors and stored in the database."""
    with pytest.raises(InvalidConfiguration) as caught:
        connect(address)
    assert "CANARY" not in str(caught.value)
    assert "@" not in str(caught.value)
