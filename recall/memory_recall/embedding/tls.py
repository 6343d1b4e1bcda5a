"""TLS to embedders, also to those whose certificates an authority of one's own has signed."""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import httpx

from memory_recall.embedding.address_policy import is_beyond_cluster
from memory_recall.errors import InvalidConfiguration

MOST_CHARACTERS = 1 << 20  # of all files together, as of a Secret; the public authorities take some 220 KiB
_MOST_FILES = 100  # of a folder


class _UnusableError(ValueError):
    """What was read are no certificates that can be used; the text says why."""


class EmbedderTls(ssl.SSLContext):
    """The TLS settings of clients that trust certificate authorities of a file beside the public ones.

    The file is read anew for each connection, so that a rotated authority is followed without a restart; in place of a
    file, all files of a folder are read. As long as no certificates can be read, those that were read last are used.
    """

    _path: Path
    _texts: tuple[str, ...] = ()
    _present: ssl.SSLContext

    @classmethod
    def of(cls, path: Path | None, base_url: str) -> ssl.SSLContext:
        """Return the settings for all connections to an address, which trust the authorities at a path.

        Without a path, they trust the public authorities alone. An address without TLS gets settings that trust none,
        since reading the public authorities takes some 30 ms, in the event loop of an API.

        Raises:
            InvalidConfiguration: there is no certificate at the path.
        """
        if path is None:
            if not base_url.lower().startswith("https:"):
                return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            return httpx.create_ssl_context(trust_env=is_beyond_cluster(base_url))
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made._path = path
        try:
            made._read()
        except (OSError, ValueError) as error:
            why = str(error) if isinstance(error, _UnusableError) else type(error).__name__
            raise InvalidConfiguration(
                f"The certificates of the embedder's authority cannot be read at {path}: {why}.",
                "Name a file with certificates in PEM form: MEMORY_EMBEDDER_CA_FILE.",
            ) from None
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401  (those of the base class)
        """Begin TLS on a connection of an asynchronous client."""
        return self._verifying().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:  # noqa: ANN401  (those of the base class)
        """Begin TLS on a connection of a blocking client."""
        return self._verifying().wrap_socket(*arguments, **options)

    def _verifying(self) -> ssl.SSLContext:
        with contextlib.suppress(OSError, ValueError):  # what was read last is used
            self._read()
        return self._present

    def _read(self) -> None:
        """Read the files, and make a context of them if they have changed.

        A context that is only added to would go on with a former authority of the same name.
        """
        texts = _texts(self._path)
        if texts == self._texts:
            return
        context = httpx.create_ssl_context()
        for text in texts:
            context.load_verify_locations(cadata=text)
        context.set_alpn_protocols(["http/1.1"])
        self._texts, self._present = texts, context


def _texts(path: Path) -> tuple[str, ...]:
    """Return the content of the file, or of each file in the folder.

    Raises:
        _UnusableError: there is no file, or there are more files or characters than certificates take.
    """
    # Kubernetes keeps the former files of a volume beside the present ones, in folders that begin with a dot.
    files = [file for file in sorted(path.iterdir()) if not file.name.startswith(".")] if path.is_dir() else [path]
    if not files:
        raise _UnusableError("the folder is empty")
    if len(files) > _MOST_FILES:
        raise _UnusableError(f"the folder has more than {_MOST_FILES} files")
    texts: list[str] = []
    left = MOST_CHARACTERS
    for file in files:
        with file.open(encoding="ascii", errors="ignore") as opened:  # comments may be in any language
            texts.append(opened.read(left + 1))
        left -= len(texts[-1])
        if left < 0:
            raise _UnusableError(f"there are more than {MOST_CHARACTERS >> 10} KiB")
    return tuple(texts)
