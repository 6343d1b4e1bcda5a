"""Reads a Terragrunt unit as far as ours uses Terragrunt, whose program is not served as a Go module.

A unit is prepared as Terragrunt prepares it before it runs OpenTofu: the files that the root configuration generates
are written beside the unit's own, and the inputs become environment variables TF_VAR_<name>. Whatever is not understood
here is refused, never ignored.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hcl2

FILE = "terragrunt.hcl"
OPTIONS = hcl2.SerializationOptions(
    with_comments=False, explicit_blocks=False, preserve_heredocs=False, strip_string_quotes=True
)
OUTPUT = re.compile(r"dependency\.([\w-]+)\.outputs\.(\w+)")

Outputs = Mapping[str, Mapping[str, Any]]


def parse(path: Path) -> dict[str, Any]:
    """Parse a file of HCL; an expression is the text ${...}, and a repeated block a list."""
    return dict(hcl2.loads(path.read_text(encoding="utf-8"), serialization_options=OPTIONS))


def named(blocks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The blocks of one type by their label."""
    return {name: body for block in blocks for name, body in block.items()}


@dataclass(frozen=True)
class Unit:
    """A directory with a terragrunt.hcl in the infrastructure repository `repository`."""

    directory: Path
    repository: Path

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """The unit's terragrunt.hcl, which has no blocks and attributes but those that this reader understands."""
        read = parse(self.directory / FILE)
        assert set(read) <= {"include", "dependency", "inputs"}, sorted(read)
        return read

    def root(self) -> Path:
        """The configuration that `include "root"` finds in the parent folders."""
        include = named(self.configuration["include"])
        assert include == {"root": {"path": "${find_in_parent_folders()}"}}, include
        return next(parent / FILE for parent in self.directory.parents if (parent / FILE).exists())

    def dependencies(self) -> dict[str, dict[str, Any]]:
        """The dependency blocks by name."""
        return named(self.configuration["dependency"])

    def generate(self) -> None:
        """Write the files that the root configuration generates."""
        read = parse(self.root())
        assert set(read) == {"generate"}, sorted(read)
        for block in named(read["generate"]).values():
            assert block["if_exists"] == "overwrite_terragrunt", block["if_exists"]
            (self.directory / block["path"]).write_text(block["contents"], encoding="utf-8")

    def environment(self, command: str, outputs: Outputs) -> dict[str, str]:
        """The variables that Terragrunt passes to a command of OpenTofu.

        `outputs` are those of the stacks that were applied. Mock outputs stand in for others where the unit allows it.
        """
        inputs = self.inputs(command, outputs)
        return {
            f"TF_VAR_{name}": value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()
        }

    def inputs(self, command: str, outputs: Outputs) -> dict[str, Any]:
        """The inputs, with the outputs of dependencies in their place."""
        known = {
            name: self._outputs(name, block, command, outputs)
            for name, block in self.dependencies().items()
            if not block.get("skip_outputs", False)
        }
        return {name: self._evaluate(value, known) for name, value in self.configuration["inputs"].items()}

    def _outputs(self, name: str, block: dict[str, Any], command: str, outputs: Outputs) -> Mapping[str, Any]:
        assert (self.directory / block["config_path"]).resolve().parent == self.directory.parent, block
        if name in outputs:
            return outputs[name]
        allowed = block["mock_outputs_allowed_terraform_commands"]
        assert command in allowed, f"{name} was never applied, and its mock outputs are not for {command}"
        return dict(block["mock_outputs"])

    def _evaluate(self, value: Any, known: Outputs) -> Any:
        if isinstance(value, dict):
            return {key: self._evaluate(entry, known) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._evaluate(entry, known) for entry in value]
        if isinstance(value, str):
            return re.sub(r"\$\{([^}]*)\}", lambda found: self._expression(found[1], known), value)
        return value

    def _expression(self, text: str, known: Outputs) -> str:
        if text == "get_repo_root()":
            return str(self.repository)
        output = OUTPUT.fullmatch(text)
        assert output is not None, f"the expression {text} is not understood"
        return str(known[output[1]][output[2]])
