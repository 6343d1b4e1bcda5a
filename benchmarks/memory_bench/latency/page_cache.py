"""Gives the pages of files back to the kernel, or brings all of them into memory.

After the first, whoever reads the files next has to read them from the disk, and after the second nobody has to. Dirty
pages cannot be given back, so a file that has some is written to the disk first. A page stays in memory nevertheless
while a process has it mapped, and always where the file system has no disk below it, as tmpfs. Therefore the pages that
stayed are counted: after a drop that kept much, caches are not cold, and times and reads are too low by what it kept.
"""

import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

_LIBC = ctypes.CDLL(None, use_errno=True)
_RESIDENT = 1  # the lowest bit of what mincore says of a page
_SHARE = 0.8  # of the memory that is available, which files may fill; the rest is for who reads them
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Dropped:
    """The size of the files whose pages were given back, and how much of it stayed in memory, both in bytes."""

    size: int
    kept: int


def drop(directory: Path) -> Dropped:
    """Give the pages of all files below a directory back, written to the disk; nothing may write to them meanwhile.

    Raises:
        OSError: a file cannot be read or its pages cannot be counted.
    """
    size = kept = 0
    for path in _files(directory):
        file = os.open(path, os.O_RDONLY)
        try:
            size += path.stat().st_size
            kept += _given_back(file, path)
        finally:
            os.close(file)
    return Dropped(size, kept)


def bring(directory: Path, *, room: float | None = None) -> int:
    """Read all files below a directory, so that their pages are in memory, and return how many bytes they have.

    If they have more than `room` bytes (default: four fifths of the memory that is available), nothing is read and 0 is
    returned, because files that do not fit push each other's pages out.

    Raises:
        OSError: a file cannot be read.
    """
    files = _files(directory)
    size = sum(path.stat().st_size for path in files)
    if size > (_SHARE * psutil.virtual_memory().available if room is None else room):
        return 0
    chunk = bytearray(_CHUNK)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(chunk):
                pass
    return size


def _files(directory: Path) -> list[Path]:
    found = sorted(directory.rglob("*"))
    return [path for path in found if not path.is_symlink() and path.is_file() and path.stat().st_size]


def _given_back(file: int, path: Path) -> int:
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    kept = _resident_bytes(file, path)
    if kept:  # dirty, probably; to write back each of a thousand clean files takes seconds
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        kept = _resident_bytes(file, path)
    return kept


def _resident_bytes(file: int, path: Path) -> int:
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapping:
        length = len(mapping)
        pages = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
        mapped = np.frombuffer(mapping, dtype=np.uint8)
        address, counted = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        failed = _LIBC.mincore(address, ctypes.c_size_t(length), counted)
        del mapped  # a mapping that something refers to cannot be closed
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot count the pages in memory: {os.strerror(number)}", str(path))
    return int(np.count_nonzero(pages & _RESIDENT)) * mmap.PAGESIZE
