"""The API key of an embedder or a hosted provider, as it is sent with each request."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import TypeAlias

import httpx

from memory_recall.errors import EmbedderUnauthorized, InvalidConfiguration
from memory_recall.secret_file import read_secret_file

ApiKey: TypeAlias = str | Path


def first_key(text: str) -> str:
    """Return the first of the API keys in a text, one a line. An embedder accepts each of them; callers send the first.

    Raises:
        InvalidConfiguration: there is no key, or it cannot be sent in a header; it is not quoted.
    """
    key = next((line.strip() for line in re.split("[\r\n]", text) if line.strip()), "")
    if not key:
        raise InvalidConfiguration("The embedder's API key is empty.", "Give the key as the embedder knows it.")
    if not (key.isascii() and key.isprintable()):
        raise InvalidConfiguration(
            "The embedder's API key has characters that no HTTP header can hold.",
            "Store the key alone, as printable ASCII characters; several keys stand one a line.",
        )
    return key


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
