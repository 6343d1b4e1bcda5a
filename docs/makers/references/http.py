"""The page of the embedder's HTTP interface, from the OpenAPI description that the embedder itself serves.

The causes of errors are not in the description, so they are written in this module.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.makers.markdown import code, document, paragraph, plain, table
from memory_embedder.errors import ErrorKind
from memory_embedder.http.app import build_app, build_probe_app
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings
from memory_embedder.telemetry.metrics import Metrics

Schema = Mapping[str, Any]

INTRODUCTION = """\
The requests that `memory-embedder serve` answers, from the OpenAPI description that it serves at `/openapi.json`.
[The embedder](../embedder.md#calling-it) has examples, and what the fields mean for queries and documents."""
ERRORS = """\
Every error has one body, `{"error": {"message", "type", "param", "code"}}`, and never quotes the input. Each answer has
an `x-request-id` (the caller's own, if it is up to 64 letters, digits, `.`, `_` or `-`), which the log line carries
too, but for those whose request could not be read: a 400 `malformed_http`, and a 429 where all connections are taken.
Both close their connection. A malformed request behind one that is still being answered gets no answer of its own, and
the connection closes after that one."""
CAUSES: dict[ErrorKind, str] = {
    ErrorKind.MALFORMED_HTTP: (
        "What came is no HTTP, its head is over 64 KiB or has over 100 fields, or its body comes in over 4,096 pieces "
        "of fewer than 64 bytes on the average."
    ),
    ErrorKind.EMPTY_INPUT: "An empty list, or a text of nothing but white space.",
    ErrorKind.UNAUTHORIZED: "`--api-key-file` is set, and the key is missing or wrong.",
    ErrorKind.UNKNOWN_MODEL: "Another model than the one that is served.",
    ErrorKind.NO_RERANKER: "Scores were asked for where no reranker is served.",
    ErrorKind.UNKNOWN_PATH: "No such path.",
    ErrorKind.METHOD: "The path does not take this method.",
    ErrorKind.TIMEOUT: "The body took longer than 30 s.",
    ErrorKind.TOO_LARGE: (
        "A body over 8 MiB or of over 4,096 JSON values, over 2,048 texts, or more tokens than one request may have."
    ),
    ErrorKind.MALFORMED: "The body is not a request.",
    ErrorKind.TOO_LONG: "A text is beyond the model's window, and `truncate` is false.",
    ErrorKind.DIMENSIONS: "`dimensions` is not the model's own number.",
    ErrorKind.TOKEN_INPUT: "`input` holds token ids.",
    ErrorKind.UNUSABLE_VECTOR: (
        "The model computes no finite vector, or score, for the texts whose places the message names; `param` names "
        "the first. It never does, so sending them again does not help. Nobody else's request fails with them."
    ),
    ErrorKind.OVERLOADED: (
        "The lane, or the memory for large requests, is full; `Retry-After` is the seconds until there is room, for "
        "the lane from the measured rate."
    ),
    ErrorKind.CLIENT_GONE: "The caller has closed the connection; only logs and metrics show it.",
    ErrorKind.INTERNAL: "A fault of the service.",
    ErrorKind.LOADING: "The model is being loaded.",
    ErrorKind.DRAINING: "The process has been told to stop.",
    ErrorKind.ENGINE: "The engine failed on this batch, or every context has failed and none has been made anew yet.",
    ErrorKind.GPU_NOT_USED: "The GPU was asked for and is not used.",
    ErrorKind.CONFIGURATION: "The settings and the model's file do not agree.",
    ErrorKind.MODEL_NOT_FETCHED: "The model's file could not be fetched.",
    ErrorKind.MODEL_NOT_VERIFIED: "The model's file has another digest than was given.",
}


def page() -> str:
    """Return the page about the HTTP interfaces of both ports."""
    service = EmbeddingService(EmbedderSettings(), _no_engine, Metrics(Lane))
    callers, probes = build_app(service).openapi(), build_probe_app(service).openapi()
    service.close()
    schemas = callers["components"]["schemas"]
    kinds = [(str(kind.status), code(kind.code), code(kind.type), CAUSES[kind]) for kind in ErrorKind]
    return document(
        "# HTTP interface of the embedder",
        INTRODUCTION,
        "## The port for callers (8080)",
        *operations(callers),
        "## The port of the probes (9090)",
        *operations(probes),
        "## Bodies",
        *(block for name, schema in schemas.items() for block in body(name, schema)),
        "## Errors",
        ERRORS,
        table(("status", "`code`", "`type`", "when"), kinds),
    )


def _no_engine(_plan: object) -> Any:  # noqa: ANN401 -- it never returns
    raise NotImplementedError


def operations(description: Schema) -> Iterator[str]:
    """Yield the page's blocks about each operation of an OpenAPI description."""
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"### `{method.upper()} {path}`"
            yield f"{operation['summary']}."
            request = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if request:
                yield from fields(request)
            yield table(("status", "body", "meaning"), _answers(operation["responses"]))


def _answers(responses: Mapping[str, Schema]) -> Iterator[tuple[str, str, str]]:
    for status, response in responses.items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        described = response["description"].replace("Successful Response", "Success.")
        yield status, kind(schema) if schema else "", plain(described)


def body(name: str, schema: Schema) -> Iterator[str]:
    """Yield the page's blocks about one request or response body."""
    yield f"### {name}"
    yield paragraph(plain(schema.get("description", "")))
    yield from fields(schema)


def fields(schema: Schema) -> Iterator[str]:
    """Yield the table of a schema's fields."""
    required = schema.get("required", ())
    rows = [
        (code(name), kind(field), "yes" if name in required else "", plain(field.get("description", "")))
        for name, field in schema["properties"].items()
    ]
    yield table(("field", "type", "required", "meaning"), rows)


def kind(schema: Schema) -> str:
    """Return the type of a field in words; a reference is a link to the body that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return " or ".join(code(f'"{value}"') for value in schema["enum"])
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
        return f"list of {kind(schema['items'])}{most}"
    name = str(schema.get("type", "anything"))
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(name, name)
