"""Reads files that hold one secret each, such as the keys of a Secret that Kubernetes mounts.

No content is cached, so a rotated secret is seen at the next read.
"""

import re
from pathlib import Path

from memory_recall.errors import InvalidConfiguration


def read_secret_file(path: Path, holds: str) -> str:
    """Return the present content of the file without surrounding whitespace.

    `holds` says in error messages what the content is.

    Raises:
        InvalidConfiguration: the file is missing, unreadable or empty.
    """
    try:
        content = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(
            f"The file of the {holds}, {path}, cannot be read ({type(error).__name__}).",
            "Check the Secret and its key, and that it is mounted there.",
        ) from None
    if not content:
        raise InvalidConfiguration(f"The file of the {holds}, {path}, is empty.", "Fill the Secret's key.")
    return content


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
