"""Which certificate the port for callers serves: usable files are read anew, and others leave the former in use."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from devcluster.node.pki import Authority, Pair
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.app import build_probe_app
from memory_embedder.http.certificate import CertificateFault, ServingCertificate
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings
from memory_embedder.telemetry.metrics import Metrics
from tests.support.serving_pair import ServingFiles, expired, not_yet_valid

EXPIRY = "memory_embedder_certificate_expiry_timestamp_seconds"
REFUSED = "memory_embedder_certificate_refused"


@pytest.fixture
def files(tmp_path: Path) -> ServingFiles:
    return ServingFiles(tmp_path / "tls")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Lane)


def faults(metrics: Metrics) -> set[str]:
    read = metrics.registry.get_sample_value
    return {fault for fault in CertificateFault if read(REFUSED, {"fault": fault.value}) == 1}


def expiry_of(pair: Pair) -> float:
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc.timestamp()


def encrypted(pair: Pair) -> bytes:
    key = serialization.load_pem_private_key(pair.key, None)
    secret = serialization.BestAvailableEncryption(b"a password")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)


def test_a_changed_pair_is_used_by_a_new_context_and_its_expiry_is_in_the_metrics(
    files: ServingFiles, metrics: Metrics
) -> None:
    """Unchanged files leave the context as it is."""
    served = ServingCertificate(files.certificate, files.key, metrics)
    first = served.context
    served.refresh()
    assert served.context is first
    assert first is not None
    assert first.minimum_version is ssl.TLSVersion.TLSv1_2
    pair = files.rotate()
    served.refresh()
    assert served.context is not first
    assert metrics.registry.get_sample_value(EXPIRY) == expiry_of(pair)
    assert faults(metrics) == set()
    served.require_usable()


def test_a_certificate_with_a_comment_in_any_language_is_served(files: ServingFiles, metrics: Metrics) -> None:
    files.certificate.write_bytes("friendlyName: Schlüssel für Köln\n".encode() + files.certificate.read_bytes())
    ServingCertificate(files.certificate, files.key, metrics).require_usable()
    assert faults(metrics) == set()


UNUSABLE: dict[str, tuple[Callable[[Pair], Pair], CertificateFault]] = {
    "half written": (lambda one: Pair(one.certificate[:300], one.key), CertificateFault.UNREADABLE),
    "empty": (lambda _one: Pair(b"", b""), CertificateFault.UNREADABLE),
    "no text": (lambda one: Pair(b"\xff" * 100, one.key), CertificateFault.UNREADABLE),
    "of another key": (lambda one: Pair(one.certificate, expired().key), CertificateFault.KEY_MISMATCH),
    "with an encrypted key": (lambda one: Pair(one.certificate, encrypted(one)), CertificateFault.UNREADABLE),
    "of a client": (lambda _one: Authority().client("me", ""), CertificateFault.UNREADABLE),
    "too large": (lambda one: Pair(one.certificate + bytes(1 << 20), one.key), CertificateFault.TOO_LARGE),
    "expired": (lambda _one: expired(), CertificateFault.EXPIRED),
    "of the future": (lambda _one: not_yet_valid(), CertificateFault.NOT_YET_VALID),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_pair_is_refused_and_the_former_stays_until_a_usable_one_comes(
    name: str, files: ServingFiles, metrics: Metrics
) -> None:
    change, fault = UNUSABLE[name]
    served = ServingCertificate(files.certificate, files.key, metrics)
    former, until = served.context, metrics.registry.get_sample_value(EXPIRY)
    bad = change(files.authority.server("localhost"))
    files.write(bad.certificate, bad.key)
    served.refresh()
    assert served.context is former
    assert metrics.registry.get_sample_value(EXPIRY) == until
    assert faults(metrics) == {fault}
    served.require_usable()
    files.rotate()
    served.refresh()
    assert served.context is not former
    assert faults(metrics) == set()


def test_missing_files_at_the_start_are_said_and_used_once_they_are_there(tmp_path: Path, metrics: Metrics) -> None:
    folder = tmp_path / "tls"
    served = ServingCertificate(folder / "tls.crt", folder / "tls.key", metrics)
    assert served.context is None
    assert faults(metrics) == {CertificateFault.MISSING}
    with pytest.raises(EmbedderError, match="missing or may not be read") as refused:
        served.require_usable()
    assert refused.value.kind is ErrorKind.CONFIGURATION
    ServingFiles(folder)
    served.refresh()
    served.require_usable()


def test_a_certificate_that_expires_while_it_is_served_is_said(files: ServingFiles, metrics: Metrics) -> None:
    now = [expiry_of(files.rotate()) - 1]
    served = ServingCertificate(files.certificate, files.key, metrics, lambda: now[0])
    assert faults(metrics) == set()
    now[0] += 2
    served.refresh()
    assert faults(metrics) == {CertificateFault.EXPIRED}


async def test_a_service_without_a_usable_certificate_is_alive_but_not_ready(
    service: EmbeddingService, tmp_path: Path
) -> None:
    """Its metrics, on the port of the probes, can be read all the same."""
    served = ServingCertificate(tmp_path / "tls.crt", tmp_path / "tls.key", service.metrics)
    transport = httpx.ASGITransport(app=build_probe_app(service, served))
    async with httpx.AsyncClient(transport=transport, base_url="http://probe") as probe:
        assert (await probe.get("/healthz")).status_code == 200
        refused = await probe.get("/readyz")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "configuration")
        metrics = (await probe.get("/metrics")).text
        assert f'{REFUSED}{{fault="missing"}} 1.0' in metrics
        assert "memory_embedder_ready 0.0" in metrics
        ServingFiles(tmp_path / "made").certificate.rename(tmp_path / "tls.crt")
        pair = Authority().server("localhost")
        (tmp_path / "tls.crt").unlink()
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        (tmp_path / "tls.key").chmod(stat.S_IRUSR)
        served.refresh()
        assert (await probe.get("/readyz")).status_code == 200
        assert "memory_embedder_ready 1.0" in (await probe.get("/metrics")).text


@pytest.mark.parametrize("given", ["tls_certificate_file", "tls_key_file"])
def test_one_file_without_the_other_is_refused_before_anything_is_loaded(given: str) -> None:
    with pytest.raises(EmbedderError, match="need each other"):
        EmbedderSettings.model_validate({given: Path("x")}).tls_files()
