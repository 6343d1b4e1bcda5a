"""Puts a model file into place: downloaded with resumption, or copied, and verified before it gets its final name.

A download grows a `.partial` file beside the target; an attempt that dies is continued by the next one, in this process
or in a later one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import stamina
import structlog

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.digest import verified_digest

_ATTEMPTS = 8  # in a row without progress
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
_PROGRESS_SECONDS = 5.0
_TIMEOUT = httpx.Timeout(30.0)


class _Retryable(Exception):  # noqa: N818 -- not an error by itself
    """A status that may be another at the next attempt."""


_PASSING = (httpx.TransportError, _Retryable)


def fetch_file(url: str, target: Path, sha256: str, *, transport: httpx.BaseTransport | None = None) -> None:
    """Download `url` to `target`, unless the right file is there already.

    Raises:
        EmbedderError: the address refuses, eight attempts in a row bring no progress, or the digest is another. What
            arrived is kept for the next run, except a whole file with another digest.
    """
    if target.exists() and _matches(target, sha256):
        return
    partial = _partial(target)
    with httpx.Client(transport=transport, follow_redirects=True, timeout=_TIMEOUT) as client:
        _download(client, url, partial)
    try:
        verified_digest(partial, sha256)
    except EmbedderError:
        partial.unlink()  # resuming a wrong file would never end well
        raise
    _rename(partial, target)


def copy_file(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a file and verify the copy.

    Raises:
        EmbedderError: the file cannot be copied, or has another digest.
    """
    try:
        partial = _partial(target)
        shutil.copyfile(source, partial)
    except OSError as error:
        raise EmbedderError(
            ErrorKind.CONFIGURATION, f"{source} cannot be copied to {target}: {error.strerror}; check the mounts."
        ) from error
    verified_digest(partial, sha256)
    _rename(partial, target)


def _partial(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(target.name + ".partial")


def _download(client: httpx.Client, url: str, partial: Path) -> None:
    while True:
        before = _size(partial)
        try:
            for attempt in stamina.retry_context(
                on=_PASSING,
                attempts=_ATTEMPTS,
                timeout=None,
                wait_initial=_FIRST_DELAY_SECONDS,
                wait_max=_LONGEST_DELAY_SECONDS,
            ):
                with attempt:
                    _attempt(client, url, partial)
        except _PASSING as error:
            if _size(partial) > before:
                continue
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"The model file could not be downloaded in {_ATTEMPTS} attempts ({type(error).__name__}); "
                "check the address and the network. What arrived is kept and the next run resumes it.",
            ) from None
        return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(client: httpx.Client, url: str, partial: Path) -> None:
    have = _size(partial)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:  # nothing is left to fetch; the digest decides whether the file is right
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
    logged = time.monotonic()
    for chunk in response.iter_raw():  # with a chunk size httpx would withhold, and lose, what came before a break
        write(chunk)
        done += len(chunk)
        if time.monotonic() - logged >= _PROGRESS_SECONDS:
            logged = time.monotonic()
            logger.info("Downloading", mebibytes=done >> 20, of=total >> 20)


def _matches(path: Path, sha256: str) -> bool:
    try:
        verified_digest(path, sha256)
    except EmbedderError:
        return False
    return True


def _rename(partial: Path, target: Path) -> None:
    partial.chmod(0o444)
    partial.replace(target)
