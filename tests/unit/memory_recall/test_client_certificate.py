"""A client certificate is loaded from files or text, and what is wrong with it is said without its content."""

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from devcluster.node.pki import Authority, Pair
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.postgres.tls import DatabaseTls, TlsMode
from memory_recall.settings import Settings

PASSWORD = "s3cret-pa55word"
PAIR, OTHER = Authority().client("app", ""), Authority().client("app", "")
CERTIFICATE, KEY = PAIR.certificate.decode(), PAIR.key.decode()


def encrypted(pair: Pair) -> str:
    key = serialization.load_pem_private_key(pair.key, None)
    best = serialization.BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, best).decode()


def refused(given: ClientCertificate) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as caught:
        given.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert "spec.database.credentials.clientCertificate" in caught.value.remedy
    assert "MEMORY_DATABASE_CERTIFICATE_FOLDER" in caught.value.remedy
    for secret in (KEY, *KEY.splitlines()[1:-1], PASSWORD):
        assert secret not in str(caught.value)
    return caught.value


@pytest.fixture
def files(tmp_path: Path) -> ClientCertificate:
    (tmp_path / "tls.crt").write_text(CERTIFICATE)
    (tmp_path / "tls.key").write_text(KEY)
    return ClientCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_a_certificate_is_loaded_from_text_and_leaves_no_file_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    ClientCertificate(CERTIFICATE, KEY).load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_key_that_is_given_as_text_is_in_a_file_that_nobody_else_can_open(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, _: Path, keyfile: Path, **__: object) -> None:  # type: ignore[override]
            assert keyfile.read_text() == KEY
            seen.append((str(keyfile.readlink()), keyfile.stat().st_mode & 0o777))

    ClientCertificate(CERTIFICATE, KEY).load(Context(ssl.PROTOCOL_TLS_CLIENT))
    ((path, mode),) = seen
    assert path.startswith("/memfd:")
    assert mode == 0o600


@pytest.mark.promise("no-text-or-secret-in-outputs")
def test_the_printed_form_has_no_key() -> None:
    assert "PRIVATE" not in repr(DatabaseTls(client=ClientCertificate(CERTIFICATE, KEY)))


@pytest.mark.parametrize(
    ("certificate", "key", "fault"),
    [
        (CERTIFICATE, OTHER.key.decode(), "does not belong to its key"),
        (CERTIFICATE, encrypted(PAIR), "without a password"),
        (CERTIFICATE, "nonsense", "no PEM text"),
        ("nonsense", KEY, "no PEM text"),
        ("", "", "no PEM text"),
    ],
)
def test_a_pair_that_cannot_be_used_is_named_with_its_fault(certificate: str, key: str, fault: str) -> None:
    assert fault in refused(ClientCertificate(certificate, key)).message


def test_a_file_that_is_not_there_is_named(files: ClientCertificate) -> None:
    assert isinstance(files.key, Path)
    files.key.unlink()
    error = refused(files)
    assert str(files.key) in error.message
    assert "FileNotFoundError" in error.message


def test_a_file_without_an_end_is_not_read(files: ClientCertificate) -> None:
    assert isinstance(files.certificate, Path)
    os.truncate(files.certificate, 1 << 40)
    assert "cannot be read" in refused(files).message


def test_a_pair_that_is_exchanged_while_it_is_read_is_read_again(files: ClientCertificate) -> None:
    """A mounted Secret is exchanged at once, so the second reading finds both files of the new pair."""
    attempts = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: Path, keyfile: Path, **more: Any) -> None:  # type: ignore[override]
            attempts.append(certfile)
            if len(attempts) == 1:
                keyfile.write_bytes(OTHER.key)
            try:
                super().load_cert_chain(certfile, keyfile, **more)
            finally:
                certfile.write_bytes(OTHER.certificate)

    files.load(Context(ssl.PROTOCOL_TLS_CLIENT))
    assert len(attempts) == 2


@pytest.mark.parametrize(
    ("tls", "demanded", "mode"),
    [
        (DatabaseTls(client=ClientCertificate("c", "k")), None, TlsMode.REQUIRE),
        (DatabaseTls(client=ClientCertificate("c", "k")), TlsMode.DISABLE, TlsMode.REQUIRE),
        (DatabaseTls(TlsMode.PREFER, client=ClientCertificate("c", "k")), None, TlsMode.REQUIRE),
        (DatabaseTls(client=ClientCertificate("c", "k")), TlsMode.VERIFY_FULL, TlsMode.VERIFY_FULL),
        (DatabaseTls(ca="x", client=ClientCertificate("c", "k")), None, TlsMode.VERIFY_FULL),
    ],
)
def test_a_client_certificate_demands_tls(tls: DatabaseTls, demanded: TlsMode | None, mode: TlsMode) -> None:
    assert tls.mode_of(demanded) is mode


def test_settings_name_the_folder_of_certificate_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_DATABASE_URL", "postgresql://app@pg/app")
    assert Settings().dsn().tls.client is None
    monkeypatch.setenv("MEMORY_DATABASE_CERTIFICATE_FOLDER", "/run/role")
    assert Settings().dsn().tls.client == ClientCertificate(Path("/run/role/tls.crt"), Path("/run/role/tls.key"))
