"""The certificate by which the port for callers speaks TLS, read anew while the service runs.

cert-manager renews a certificate, and the kubelet then exchanges both files in the volume, with no signal to the
process. Therefore the server compares the files with what it has read each second. A changed pair becomes a TLS context
of its own, which new connections use; those that are open go on with theirs. A context is never changed once it is
used: to load a key that does not belong to the certificate would leave it with neither, while a new one that cannot be
made leaves the present one in use. So it does with files that are half written, too large or gone.

A service whose files are unusable when it starts opens no connection and is not ready, but goes on and looks again. It
says why in its log and its metrics. A process that ended would only be started again and again, each time later.
"""

import hashlib
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from memory_embedder.errors import EmbedderError, configuration_error
from memory_embedder.telemetry.metrics import Metrics

_MOST_BYTES = 1 << 20  # of a file, as of a Secret
_HANDSHAKE_STEPS = 8  # of both sides in memory, which need three
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, which the module `ssl` does not name
_KEY_MISMATCH = "KEY_VALUES_MISMATCH"


class CertificateFault(StrEnum):
    """Why a pair of files is not used; each is a value of the label `fault`."""

    MISSING = "missing"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    KEY_MISMATCH = "key_mismatch"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"


_EXPLANATIONS = {
    CertificateFault.MISSING: "a file is missing or may not be read",
    CertificateFault.TOO_LARGE: "a file is larger than 1 MiB",
    CertificateFault.UNREADABLE: "the files hold no certificate of a server and unencrypted key in PEM form",
    CertificateFault.KEY_MISMATCH: "the key does not belong to the certificate",
    CertificateFault.EXPIRED: "the certificate has expired",
    CertificateFault.NOT_YET_VALID: "the certificate is not valid yet",
}


@dataclass(frozen=True)
class _Pair:
    """A certificate and key in use: the digest of the files, and the times of validity in seconds since 1970."""

    digest: bytes
    context: ssl.SSLContext
    not_before: float
    not_after: float


class _RefusedError(Exception):
    def __init__(self, fault: CertificateFault) -> None:
        self.fault = fault


class ServingCertificate:
    """A certificate and its key in two files, and the TLS context that new connections use."""

    def __init__(self, certificate: Path, key: Path, metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self._files = (certificate, key)
        self._metrics = metrics
        self._clock = clock
        self._pair: _Pair | None = None
        self._fault: CertificateFault | None = None
        self._logger = structlog.get_logger("memory_embedder.http.certificate")
        for fault in CertificateFault:
            metrics.certificate_refused.labels(fault=fault.value).set(0)
        self.refresh()

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context of new connections; None as long as no usable pair has been read."""
        return self._pair.context if self._pair else None

    def require_usable(self) -> None:
        """Check that there is a certificate to serve.

        Raises:
            EmbedderError: no usable pair has been read yet.
        """
        if self._pair is None and self._fault is not None:
            raise self._refusal(self._fault)

    def refresh(self) -> None:
        """Read the files; use them from now on if they have changed and are usable."""
        try:
            self._use(self._read())
        except _RefusedError as error:
            self._report(error.fault)
        else:
            self._report(None)

    def _read(self) -> _Pair:
        content = [_content(file) for file in self._files]
        digest = hashlib.blake2b(b"\0".join(content)).digest()
        if self._pair and self._pair.digest == digest:
            return self._pair
        context = _server_context(*self._files)
        return _Pair(digest, context, *_validity(context, content[0]))

    def _use(self, pair: _Pair) -> None:
        now = self._clock()
        if now < pair.not_before:
            raise _RefusedError(CertificateFault.NOT_YET_VALID)
        if now >= pair.not_after:
            raise _RefusedError(CertificateFault.EXPIRED)
        if pair is not self._pair:
            self._pair = pair
            self._metrics.certificate_expiry.set(pair.not_after)
            expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(pair.not_after))
            self._logger.info("Certificate read", file=str(self._files[0]), expires=expiry)

    def _report(self, fault: CertificateFault | None) -> None:
        if fault is self._fault:
            return
        for one in (self._fault, fault):
            if one is not None:
                self._metrics.certificate_refused.labels(fault=one.value).set(1 if one is fault else 0)
        self._fault = fault
        if fault is not None:
            goes_on = "the former certificate stays in use" if self._pair else "no connection is accepted"
            self._logger.error("The certificate is refused", message=self._refusal(fault).message, meanwhile=goes_on)

    def _refusal(self, fault: CertificateFault) -> EmbedderError:
        named = " and ".join(map(str, self._files))
        return configuration_error(
            f"The certificate and key in {named} are not used: {_EXPLANATIONS[fault]}. Correct the files of "
            "--tls-certificate-file and --tls-key-file; they are read again within a second.",
        )


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError:
        raise _RefusedError(CertificateFault.MISSING) from None
    if len(content) > _MOST_BYTES:
        raise _RefusedError(CertificateFault.TOO_LARGE)
    return content


def _server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        mismatch = error.reason == _KEY_MISMATCH
        raise _RefusedError(CertificateFault.KEY_MISMATCH if mismatch else CertificateFault.UNREADABLE) from None
    except OSError:
        raise _RefusedError(CertificateFault.MISSING) from None
    return context


def _validity(context: ssl.SSLContext, certificates: bytes) -> tuple[float, float]:
    """Return from when and until when the certificate of a context is valid, in seconds since 1970.

    What a client is shown in a handshake is read by a handshake in memory, because the module `ssl` tells nothing else
    about a certificate that it has loaded.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        # Comments, such as the names that `openssl pkcs12` writes, may be in any language.
        client_context.load_verify_locations(cadata=certificates.decode("ascii", errors="ignore"))
        sides = (
            client_context.wrap_bio(to_client, to_server),
            context.wrap_bio(to_server, to_client, server_side=True),
        )
        for step in range(_HANDSHAKE_STEPS):
            with suppress(ssl.SSLWantReadError):
                sides[step % 2].do_handshake()
        shown = sides[0].getpeercert() or {}
        return _seconds(shown["notBefore"]), _seconds(shown["notAfter"])
    except (ssl.SSLError, ValueError, KeyError):
        raise _RefusedError(CertificateFault.UNREADABLE) from None


def _seconds(moment: object) -> float:
    return float(ssl.cert_time_to_seconds(str(moment)))
