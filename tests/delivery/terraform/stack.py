"""The unit as OpenTofu is run in it, and the names that it uses."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.delivery.terraform.terragrunt import Unit

NAMESPACE, DATABASE = "claude-memory", "claude_memory"
DEFINITION = "memoryindexes.memory-index.dev"
SEAT = {"nvidia.com/gpu": 1, "example.com/gpu-memory-mib": 2000}
ROWS = 20


def tofu_in(
    directory: Path, settings: dict[str, str], *arguments: str, accepted: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run OpenTofu in a directory; a status that is not accepted fails the test with the end of the output."""
    environment = {**os.environ, **settings}
    done = subprocess.run(
        [settings["TOFU"], *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in accepted, f"tofu {arguments}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@dataclass(frozen=True)
class Stack:
    """The copied unit; `outputs` are those of the stacks that it depends on."""

    unit: Unit
    settings: dict[str, str]
    outputs: dict[str, dict[str, str]]

    @property
    def state(self) -> Path:
        """The file of the state."""
        return self.unit.directory / "terraform.tfstate"

    def run(self, command: str, *options: str, accepted: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run a command of OpenTofu as Terragrunt would, with the inputs of the unit."""
        inputs = self.unit.environment(command, self.outputs)
        return tofu_in(self.unit.directory, {**self.settings, **inputs}, command, *options, accepted=accepted)

    def changes(self) -> list[str]:
        """Addresses of the resources that a plan would change now, in order; the plan is kept."""
        done = self.run("plan", "-input=false", "-out=plan", "-detailed-exitcode", accepted=(0, 2))
        planned = json.loads(self.plan())["resource_changes"]
        addresses = sorted(change["address"] for change in planned if change["change"]["actions"] != ["no-op"])
        assert (done.returncode == 2) == bool(addresses), done.stdout
        return addresses

    def plan(self) -> str:
        """The plan that was kept, as JSON."""
        return tofu_in(self.unit.directory, self.settings, "show", "-json", "plan").stdout
