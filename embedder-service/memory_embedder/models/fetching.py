"""Downloads or copies a model file, and verifies it before it gets its final name.

A download is written to a `.partial` file beside the target. After a failed attempt, the next attempt continues that
file, even in another process. The size is limited, since the server decides how much it sends.
"""

import os
import re
import shutil
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies

import httpx
import stamina
import structlog

from memory_embedder.errors import EmbedderError, ErrorKind, configuration_error
from memory_embedder.models.fetch_addresses import CheckedTransport, ProxiedTransport
from memory_embedder.models.model_file import DIGEST_PATTERN, ModelFile

_ATTEMPTS = 8  # in a row without progress
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
_PROGRESS_SECONDS = 5.0
_TIMEOUT = httpx.Timeout(30.0)


class _Retryable(Exception):  # noqa: N818 -- not an error by itself
    """Raised for an HTTP status that may be different at the next attempt."""


_PASSING = (httpx.TransportError, _Retryable)


@dataclass(frozen=True, slots=True)
class _Download:
    """One file to download: its address, the partial file that receives it, and the most bytes that it may have."""

    client: httpx.Client
    url: str
    partial: Path
    most_bytes: int

    def check_size(self, size: int) -> None:
        if size > self.most_bytes:
            self.partial.unlink(missing_ok=True)
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED,
                f"The model file is larger than {self.most_bytes >> 20} MiB; check the URL, raise --max-mebibytes, "
                "or serve the file from a volume.",
            )


def fetch_file(
    url: str,
    target: Path,
    sha256: str,
    *,
    most_bytes: int,
    transport: httpx.BaseTransport,
) -> None:
    """Download `url` to `target`, unless `target` already has the digest `sha256`.

    A later call continues a partial file, unless the file is too large or has another digest; such a file is deleted.

    Raises:
        EmbedderError: the address or the digest is malformed, the host has forbidden addresses alone, the server
            refuses the request, redirects without end or to plain HTTP, the file has more than `most_bytes`, eight
            attempts in a row bring no further bytes, the file cannot be written, or the digest differs.
    """
    _check_address(url)
    _check_digest(sha256)

    def check_redirect(request: httpx.Request) -> None:
        if request.url.scheme == "http" and request.url != httpx.URL(url):
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED,
                "The model file's address redirects to plain HTTP; give an address that stays on HTTPS.",
            )

    hooks = {"request": [check_redirect]}
    try:
        if target.exists() and _matches(target, sha256):
            return
        partial = _partial(target)
        with httpx.Client(transport=transport, follow_redirects=True, timeout=_TIMEOUT, event_hooks=hooks) as client:
            _download(_Download(client, url, partial, most_bytes))
        if not _matches(partial, sha256):
            partial.unlink()  # resuming a wrong file would never end well
            raise EmbedderError(
                ErrorKind.MODEL_NOT_VERIFIED,
                "The file that was fetched has another digest than the one that was given; it is deleted. Correct the "
                "URL or the digest.",
            )
        _rename(partial, target)
    except OSError as error:
        raise EmbedderError(
            ErrorKind.MODEL_NOT_FETCHED,
            f"{target} or its .partial file cannot be written ({error.strerror}); check its volume.",
        ) from error


def copy_file(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a file and verify the digest of the copy, unless `sha256` is None.

    Raises:
        EmbedderError: the digest is malformed, or the file cannot be copied or has another digest.
    """
    if sha256 is not None:
        _check_digest(sha256)
    try:
        partial = _partial(target)
        try:
            shutil.copyfile(source, partial)
            _verify(partial, sha256)
            _rename(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise configuration_error(
            f"{source} cannot be copied to {target}: {error.strerror}; check the mounts."
        ) from error


def checked_transport(*, ca_file: Path | None = None, permitted: Iterable[str] = ()) -> httpx.BaseTransport:
    """Return the transport that refuses forbidden addresses and uses the proxies of HTTPS_PROXY and HTTP_PROXY.

    Servers, and a proxy that is reached by https, are verified by the public authorities and by those of `ca_file`.
    `permitted` are the only hosts that are fetched from through a proxy, if there are any.

    Raises:
        EmbedderError: the file has no certificates, or a proxy's URL is none.
    """
    tls = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        try:
            tls.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise configuration_error(f"{ca_file} has no certificates ({error.strerror or error}).") from error
    direct, proxies = CheckedTransport(httpx.HTTPTransport(verify=tls)), getproxies()
    if not proxies.keys() & {"http", "https", "all"}:
        return direct

    def through(url: str) -> httpx.BaseTransport:
        secured = tls if url.startswith("https:") else None
        return httpx.HTTPTransport(verify=tls, proxy=httpx.Proxy(url, ssl_context=secured))

    return ProxiedTransport(direct, proxies, through, permitted=permitted)


def _check_address(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise EmbedderError(
            ErrorKind.MODEL_NOT_FETCHED,
            "The model file's address must begin with https:// or http:// and name a host; check the URL.",
        )


def _check_digest(sha256: str) -> None:
    if not re.fullmatch(DIGEST_PATTERN, sha256):
        raise EmbedderError(
            ErrorKind.MODEL_NOT_VERIFIED,
            f"'{sha256}' is no digest; give the 64 hexadecimal digits, in lower case, that sha256sum prints.",
        )


def _partial(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(target.name + ".partial")


def _download(wanted: _Download) -> None:
    while True:
        before = _size(wanted.partial)
        try:
            for attempt in stamina.retry_context(
                on=_PASSING,
                attempts=_ATTEMPTS,
                timeout=None,
                wait_initial=_FIRST_DELAY_SECONDS,
                wait_max=_LONGEST_DELAY_SECONDS,
            ):
                with attempt:
                    _attempt(wanted)
        except httpx.TooManyRedirects as error:
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED, "The model file's address redirects without end; check the URL."
            ) from error
        except _PASSING as error:
            if _size(wanted.partial) > before:
                continue
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED,
                f"The model file could not be downloaded in {_ATTEMPTS} attempts ({type(error).__name__}); "
                "check the address and the network. What arrived is kept and the next run resumes it.",
            ) from None
        return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(wanted: _Download) -> None:
    have = _size(wanted.partial)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with wanted.client.stream("GET", wanted.url, headers=headers) as response:
        if have and response.status_code == 416:  # nothing is left; the digest decides whether the file is right
            return
        if response.status_code in {408, 429} or response.status_code >= 500:
            raise _Retryable
        if response.status_code not in {200, 206}:
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED, f"The model file's address answered {response.status_code}; check the URL."
            )
        resumed = response.status_code == 206
        if resumed and not response.headers.get("content-range", f"bytes {have}-").startswith(f"bytes {have}-"):
            wanted.partial.unlink(missing_ok=True)  # another part than asked for: without one, all of it is sent
            raise _Retryable
        done = have if resumed else 0
        wanted.check_size(done + int(response.headers.get("content-length", 0)))
        with wanted.partial.open("ab" if resumed else "wb") as file:
            _write(wanted, response, file.write, done)
            file.flush()
            os.fsync(file.fileno())


def _write(wanted: _Download, response: httpx.Response, write: Callable[[bytes], int], done: int) -> None:
    total = done + int(response.headers.get("content-length", 0))
    logger = structlog.get_logger("memory_embedder.fetch")
    logged = time.monotonic()
    for chunk in response.iter_raw():  # with a chunk size httpx would withhold, and lose, what came before a break
        done += len(chunk)
        wanted.check_size(done)
        write(chunk)
        if time.monotonic() - logged >= _PROGRESS_SECONDS:
            logged = time.monotonic()
            logger.info("Downloading", mebibytes=done >> 20, of=total >> 20)


def _verify(path: Path, sha256: str | None) -> None:
    with ModelFile(path) as file:
        file.verified_digest(sha256)


def _matches(path: Path, sha256: str) -> bool:
    try:
        _verify(path, sha256)
    except EmbedderError:
        return False
    return True


def _rename(partial: Path, target: Path) -> None:
    partial.chmod(0o444)
    partial.replace(target)
