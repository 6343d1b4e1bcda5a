"""The API key of an embedder or a hosted provider, as it is sent with each request."""

from collections.abc import Generator
from pathlib import Path
from typing import TypeAlias

import httpx

from memory_recall.errors import EmbedderUnauthorized, InvalidConfiguration
from memory_recall.secret_file import first_key, read_secret_file

ApiKey: TypeAlias = str | Path


class BearerKey(httpx.Auth):
    """Adds an API key to each request. A key in a file is read each time, so that a rotation needs no restart.

    Raises:
        InvalidConfiguration: a key that is given as a text cannot be sent.
    """

    def __init__(self, key: ApiKey) -> None:
        self._key = key if isinstance(key, Path) else first_key(key)

    def read(self) -> str:
        """Return the present key: of a file with several, as an embedder has it, the first.

        Raises:
            InvalidConfiguration: the key's file is missing, unreadable or empty, or the key cannot be sent.
        """
        if isinstance(self._key, Path):
            return first_key(read_secret_file(self._key, "API key"))
        return self._key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the key to a request.

        Raises:
            EmbedderUnauthorized: the key's file is missing, unreadable or empty, or the key cannot be sent, so the
                request is not sent.
        """
        try:
            key = self.read()
        except InvalidConfiguration as error:
            raise EmbedderUnauthorized(error.message, error.remedy) from None
        request.headers["authorization"] = f"Bearer {key}"
        yield request
