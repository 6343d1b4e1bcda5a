"""Reads files that hold one secret each, such as the keys of a Secret that Kubernetes mounts.

No content is cached, so a rotated secret is seen at the next read.
"""

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
