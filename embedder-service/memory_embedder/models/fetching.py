"""Brings a model file into place: downloaded with resumption, or copied, and always verified before it gets its name.

A download grows a `.partial` file beside the target; an attempt that dies is continued by the next one, in this
process or in a later one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import structlog

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.digest import verified_digest

_ATTEMPTS = 8
_PROGRESS_SECONDS = 5.0
_TIMEOUT = httpx.Timeout(30.0)


def fetch_file(
    url: str,
    target: Path,
    sha256: str,
    *,
    client: httpx.Client | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Downloads `url` to `target`; does nothing when the right file is there already."""
    if target.exists() and _matches(target, sha256):
        return
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    http = client or httpx.Client(follow_redirects=True, timeout=_TIMEOUT)
    try:
        _download(http, url, partial, sleep)
    finally:
        if client is None:
            http.close()
    try:
        verified_digest(partial, sha256)
    except EmbedderError:
        partial.unlink()  # resuming a wrong file would never end well
        raise
    _settle(partial, target)


def copy_file(source: Path, target: Path, sha256: str | None) -> None:
    """Copies a file and verifies the copy."""
    partial = target.with_name(target.name + ".partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, partial)
    except OSError as error:
        raise EmbedderError(
            ErrorKind.CONFIGURATION, f"{source} cannot be copied to {target}: {error.strerror}; check the mounts."
        ) from error
    verified_digest(partial, sha256)
    _settle(partial, target)


def _download(client: httpx.Client, url: str, partial: Path, sleep: Callable[[float], None]) -> None:
    delay, attempt, have = 1.0, 0, 0
    while True:
        try:
            _attempt(client, url, partial)
        except (httpx.TransportError, _Retryable) as error:
            arrived = partial.stat().st_size if partial.exists() else 0
            attempt, delay = (1, 1.0) if arrived > have else (attempt + 1, delay)
            have = arrived
            if attempt == _ATTEMPTS:
                raise EmbedderError(
                    ErrorKind.CONFIGURATION,
                    f"The model file could not be downloaded in {_ATTEMPTS} attempts ({type(error).__name__}); "
                    "check the address and the network. What arrived is kept and the next run resumes it.",
                ) from None
            sleep(delay)
            delay = min(delay * 2, 30.0)
        else:
            return


class _Retryable(Exception):  # noqa: N818 -- no error by itself
    """The server may do better next time."""


def _attempt(client: httpx.Client, url: str, partial: Path) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:  # nothing is left to fetch; the digest decides whether it is right
            return
        if response.status_code in {408, 429} or response.status_code >= 500:
            raise _Retryable
        if response.status_code not in {200, 206}:
            raise EmbedderError(
                ErrorKind.CONFIGURATION, f"The model file's address answered {response.status_code}; check the URL."
            )
        resumed = response.status_code == 206
        total = int(response.headers.get("content-length", 0)) + (have if resumed else 0)
        with partial.open("ab" if resumed else "wb") as file:
            _write(response, file.write, have if resumed else 0, total)
            file.flush()
            os.fsync(file.fileno())


def _write(response: httpx.Response, write: Callable[[bytes], int], done: int, total: int) -> None:
    logger = structlog.get_logger("memory_embedder.fetch")
    told = time.monotonic()
    for chunk in response.iter_raw():  # with a chunk size httpx would withhold, and lose, what came before a break
        write(chunk)
        done += len(chunk)
        if time.monotonic() - told >= _PROGRESS_SECONDS:
            told = time.monotonic()
            logger.info("Downloading", mebibytes=done >> 20, of=total >> 20)


def _matches(path: Path, sha256: str) -> bool:
    try:
        verified_digest(path, sha256)
    except EmbedderError:
        return False
    return True


def _settle(partial: Path, target: Path) -> None:
    partial.chmod(0o444)
    partial.replace(target)
