"""Computes digests of build inputs. Unchanged inputs have the same digest, so that nothing is built twice."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

KEY_LENGTH = 16
_IGNORED_DIRECTORIES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def digest_of(parts: Mapping[str, bytes | str]) -> str:
    """Compute a short digest of named parts, independent of their order."""
    whole = hashlib.sha256()
    for name in sorted(parts):
        part = parts[name]
        data = part.encode() if isinstance(part, str) else part
        whole.update(f"{name}\0{len(data)}\0".encode())
        whole.update(data)
    return whole.hexdigest()[:KEY_LENGTH]


def digest_of_files(root: Path, paths: Iterable[str | Path], extra: Mapping[str, str] | None = None) -> str:
    """Compute a short digest of the files below `root` that `paths` names, and of the strings in `extra`.

    Raises:
        FileNotFoundError: one of `paths` is no file and no folder with files, so that it would never change a digest.
    """
    parts: dict[str, bytes | str] = {f"={name}": value for name, value in (extra or {}).items()}
    for entry in paths:
        files = _files(root / entry)
        if not files:
            raise FileNotFoundError(f"There is no file {root / entry}, nor one below it: correct the path.")
        parts |= {file.relative_to(root).as_posix(): file.read_bytes() for file in files}
    return digest_of(parts)


def sha256_of(path: Path) -> str:
    """Compute the sha256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [
        file
        for file in path.rglob("*")
        if file.is_file() and file.suffix != ".pyc" and not _IGNORED_DIRECTORIES.intersection(file.parts)
    ]
