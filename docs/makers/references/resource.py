"""The page of the MemoryIndex's fields, from the schema by which the API server checks an object."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.makers.markdown import bullet, code, document, paragraph, plain, table

Schema = Mapping[str, Any]

DEFINITION = Path(__file__).parents[3] / "charts" / "memory-index" / "crds" / "memoryindexes.yaml"
# Fields of Kubernetes' own types, whose inner fields its documentation describes.
KUBERNETES_TYPES = frozenset(
    {"affinity", "labelSelector", "namespaceSelector", "podSelector", "resources", "tolerations"}
)
INTRODUCTION = """\
Every field of a `MemoryIndex`, from the definition by which the API server checks it. `kubectl explain
memoryindex.spec --recursive` shows the same in a terminal. [Configuration](../configuration.md) has examples and says
which fields belong together."""


def page() -> str:
    """Return the page of the fields of specification and status."""
    definition = yaml.load(DEFINITION.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    version = definition["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    own = {name: field for name, field in spec["properties"].items() if "properties" not in field}
    sections = [
        section(f"`spec.{name}`", field, name) for name, field in spec["properties"].items() if "properties" in field
    ]
    return document(
        "# Fields of the MemoryIndex",
        INTRODUCTION,
        paragraph(plain(schema["description"])),
        "## `metadata`",
        *refusals(schema, ""),
        "## `spec`",
        paragraph(plain(spec["description"])),
        table(("field", "type", "default", "meaning"), list(rows(own, "", spec))),
        *refusals({"x-kubernetes-validations": spec["x-kubernetes-validations"]}, "spec"),
        *sections,
        "## `status`",
        paragraph(plain(status.get("description", "What the operator reports."))),
        table(("field", "type", "meaning"), [(*row[:2], row[3]) for row in rows(status["properties"], "", status)]),
        "## Columns",
        paragraph("What `kubectl get memoryindexes` shows; those marked *wide* only with `-o wide`."),
        table(("column", "from", "meaning"), list(columns(version["additionalPrinterColumns"]))),
    )


def section(title: str, field: Schema, path: str) -> str:
    """Return the part of the page about one object of the specification."""
    return document(
        f"## {title}",
        paragraph(plain(field["description"])),
        table(("field", "type", "default", "meaning"), list(rows(field["properties"], path, field))),
        *refusals(field, path),
    )


def rows(fields: Mapping[str, Schema], path: str, parent: Schema) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each field and the fields within it, down to those of Kubernetes' own types."""
    for name, field in fields.items():
        inner = f"{path}.{name}" if path else name
        required = name in parent.get("required", ())
        default = "required" if required else _default(field)
        yield code(inner), kind(field), default, " ".join([plain(field.get("description", "")), limits(field)])
        if name in KUBERNETES_TYPES:
            continue
        yield from rows(field.get("properties", {}), inner, field)
        yield from rows(field.get("items", {}).get("properties", {}), f"{inner}[]", field.get("items", {}))


def _default(field: Schema) -> str:
    default = field.get("default", "")
    if default == {}:  # an object whose fields have defaults of their own
        return ""
    return code(str(default).lower() if isinstance(default, bool) else _shown(default))


def _shown(value: object) -> object:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else value


def kind(field: Schema) -> str:
    """Return a field's type as a reader would say it."""
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    if field.get("type") == "array":
        return f"list of {kind(field['items'])}s"
    if "additionalProperties" in field:
        return "map"
    return {"string": "text", "boolean": "true or false"}.get(field["type"], str(field["type"]))


def limits(field: Schema) -> str:
    """Return in words which values the schema permits."""
    found = []
    if "enum" in field:
        found.append(f"One of {', '.join(code(value) for value in field['enum'])}.")
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        found.append(f"{least} to {most}.")
    elif least is not None:
        found.append(f"At least {least}.")
    return " ".join(found)


def refusals(field: Schema, path: str) -> list[str]:
    """Return the messages of the API server's rules about a field and the fields within it, as a list."""
    lines = [
        bullet(f"{code(where)}: {plain(message)}." if where else f"{plain(message)}.")
        for where, message in dict.fromkeys(_rules(field, path))
    ]
    return ["What else the API server checks, with the message of a refusal:", "\n".join(lines)] if lines else []


def _rules(field: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in field.get("x-kubernetes-validations", ()):
        yield path, str(rule["message"])
    for name, inner in field.get("properties", {}).items():
        if name not in KUBERNETES_TYPES and (path or name not in {"spec", "status"}):
            yield from _rules(inner, f"{path}.{name}" if path else name)
    if "items" in field:
        yield from _rules(field["items"], f"{path}[]")


def columns(printed: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each column that kubectl prints."""
    for column in printed:
        wide = " *wide*" if column.get("priority") else ""
        yield f"{column['name'].upper()}{wide}", code(column["jsonPath"]), plain(column.get("description", ""))
