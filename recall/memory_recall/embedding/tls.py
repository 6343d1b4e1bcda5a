"""TLS to embedders whose certificates an authority of one's own has signed."""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import httpx

from memory_recall.errors import InvalidConfiguration


class EmbedderTls(ssl.SSLContext):
    """The TLS settings of clients that trust certificate authorities of a file beside the public ones.

    The file is read anew for each connection, so that a rotated authority is followed without a restart; in place of a
    file, all files of a folder are read. As long as no certificates can be read, those that were read last are used.
    """

    _path: Path
    _texts: tuple[str, ...] = ()
    _present: ssl.SSLContext

    @classmethod
    def of(cls, path: Path | None) -> "EmbedderTls | bool":
        """Return the argument `verify` of an httpx client that trusts the authorities at a path.

        Without a path it is True, by which httpx trusts the public authorities alone.

        Raises:
            InvalidConfiguration: there is no certificate at the path.
        """
        if path is None:
            return True
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made._path = path
        try:
            made._read()
        except (OSError, ValueError) as error:
            raise InvalidConfiguration(
                f"The certificates of the embedder's authority cannot be read at {path}: {type(error).__name__}.",
                "Name a file with certificates in PEM form: MEMORY_EMBEDDER_CA_FILE.",
            ) from None
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401  (those of the base class)
        """Begin a connection of an asynchronous client."""
        return self._verifying().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:  # noqa: ANN401  (those of the base class)
        """Begin a connection of a blocking client."""
        return self._verifying().wrap_socket(*arguments, **options)

    def _verifying(self) -> ssl.SSLContext:
        with contextlib.suppress(OSError, ValueError):  # what was read last is used
            self._read()
        return self._present

    def _read(self) -> None:
        """Read the files, and make a context of them if they have changed.

        A context that is only added to would go on with a former authority of the same name.
        """
        files = sorted(self._path.iterdir()) if self._path.is_dir() else [self._path]
        # Kubernetes keeps the former files of a volume beside the present ones, in folders that begin with a dot.
        texts = tuple(file.read_text(encoding="ascii") for file in files if not file.name.startswith("."))
        if not texts:
            raise ValueError
        if texts == self._texts:
            return
        context = httpx.create_ssl_context()
        for text in texts:
            context.load_verify_locations(cadata=text)
        context.set_alpn_protocols(["http/1.1"])
        self._texts, self._present = texts, context
