"""The page of the chart's values: defaults and comments of `values.yaml`, limits of `values.schema.json`.

Below them are the combinations of values in the chart's folder `ci`, each with the comment with which its file begins.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.makers.markdown import code, document, plain, table

CHART = Path(__file__).parents[3] / "charts" / "memory-index"
_KEY = re.compile(r"( *)([A-Za-z]+):")
_COMMENT = re.compile(r" *# ?(.*)")
INTRODUCTION = """\
Every value of the chart `charts/memory-index`, with its default. helm refuses what is not listed here.
[Installation](../install.md) and [configuration](../configuration.md#chart-values) show them in use, and so do the
[combinations](#combinations)."""
COMBINATIONS = """\
Each of these files is a complete set of values. `helm lint --strict` accepts all of them, and together they set every
value. `make e2e-local` sends what helm renders from each to a real API server as a dry run."""


def page() -> str:
    """Return the page of the chart's values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    meanings = comments((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = [
        (code(name), code(shown(value)), " ".join([plain(meanings.get(name, "")), limits(rule, schema)]))
        for name, value, rule in leaves(values, schema)
    ]
    return document(
        "# Chart values",
        INTRODUCTION,
        table(("value", "default", "meaning"), rows),
        "## Combinations",
        COMBINATIONS,
        table(("file", "for"), combinations()),
    )


def combinations() -> Iterator[tuple[str, str]]:
    """Yield a link to each file of the chart's folder `ci`, and the comment with which the file begins."""
    for file in sorted((CHART / "ci").glob("*-values.yaml")):
        lines = itertools.takewhile(_COMMENT.fullmatch, file.read_text(encoding="utf-8").splitlines())
        purpose = " ".join(line.removeprefix("# ") for line in lines)
        yield f"[`{file.name}`](../../charts/memory-index/ci/{file.name})", plain(purpose)


def comments(text: str) -> dict[str, str]:
    """Return the comment above each key of a YAML text, by the key's dotted name.

    A comment belongs to the key directly below it. Keys without a comment are left out.
    """
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    pending: list[str] = []
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            pending.append(comment[1])
        elif key := _KEY.match(line):
            depth = len(key[1])
            path = [*((indent, name) for indent, name in path if indent < depth), (depth, key[2])]
            if pending:
                found[".".join(name for _, name in path)] = " ".join(pending)
            pending = []
        else:
            pending = []
    return found


def leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name, default and schema of each value; an object without schema of its fields is one value."""
    for name, value in values.items():
        rule = schema["properties"][name]
        if rule.get("properties"):
            yield from leaves(value, rule, f"{path}{name}.")
        else:
            yield f"{path}{name}", value, rule


def shown(value: object) -> str:
    """Return a default as one line of YAML; an empty text is shown as nothing."""
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def limits(rule: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return in words which values the schema permits."""
    if "$ref" in rule:
        return limits(schema["definitions"][rule["$ref"].rpartition("/")[2]], schema)
    if "enum" in rule:
        return f"One of {', '.join(code(value) for value in rule['enum'])}."
    if "minimum" in rule and "maximum" in rule:
        return f"{rule['minimum']} to {rule['maximum']}."
    return ""
