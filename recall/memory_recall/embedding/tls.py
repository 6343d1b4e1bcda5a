"""TLS to embedders whose certificates an authority of one's own has signed."""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import httpx

from memory_recall.errors import InvalidConfiguration


class EmbedderTls(ssl.SSLContext):
    """Verifies embedders by the authorities that this machine knows and by those of a file.

    The file is read anew for each connection, so that a rotated authority is followed without a restart; in place of a
    file, all files of a folder are read. While no certificates can be read, those of the time before verify.
    """

    _path: Path
    _texts: tuple[str, ...] = ()
    _present: ssl.SSLContext

    @classmethod
    def of(cls, path: Path | None) -> "EmbedderTls | bool":
        """Return what httpx takes as `verify`: True, for the known authorities alone, if no path is given.

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
        with contextlib.suppress(OSError, ValueError):  # those of the time before verify
            self._read()
        return self._present

    def _read(self) -> None:
        """Read the files, and make a context of them if they have changed; two authorities may have the same name."""
        files = sorted(self._path.iterdir()) if self._path.is_dir() else [self._path]
        # Kubernetes keeps the former files of a volume beside the present ones, in folders that begin with a dot.
        texts = tuple(file.read_text(encoding="ascii") for file in files if not file.name.startswith("."))
        if texts == self._texts:
            return
        context = httpx.create_ssl_context()
        for text in texts:
            context.load_verify_locations(cadata=text)
        context.set_alpn_protocols(["http/1.1"])
        self._texts, self._present = texts, context
