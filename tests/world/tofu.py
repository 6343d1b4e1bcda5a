"""The Terraform modules, tried by the tests of delivery on a cluster of their own."""

import json

from tests.world.parts import Figures, Run
from tests.world.sessions import run_tests

_SECONDS = 3600.0
_FIGURE = "tofu_second_plan_changes"


def prove_tofu(_: Run) -> Figures:
    """Apply the modules with OpenTofu until an index is Ready, plan again, and destroy what was applied."""
    output = run_tests("tests/delivery/terraform", seconds=_SECONDS)
    return {_FIGURE: json.loads(output.splitlines()[-1])[_FIGURE]}
