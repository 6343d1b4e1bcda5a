"""How often the operator was started between two readings of its pods."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.cluster.hostile.author import operator_starts, starts_between


@dataclass
class _Answering:
    """Stands for the cluster, whose answer to every `kubectl` is this text."""

    text: str

    def kubectl(self, *_: str) -> str:
        return self.text


def test_the_restarts_of_all_containers_of_a_pod_are_added() -> None:
    cluster: Any = _Answering("first 2 1\nwithout-containers\n")
    assert operator_starts(cluster) == {"first": 3, "without-containers": 0}


@pytest.mark.parametrize(
    ("after", "starts"),
    [({"one": 1}, 0), ({"one": 3}, 2), ({"two": 0}, 1), ({"one": 2, "two": 1}, 3)],
    ids=["nothing", "restarts of the pod", "another pod in its place", "both"],
)
def test_a_new_pod_counts_as_one_start_and_a_restart_as_another(after: dict[str, int], starts: int) -> None:
    assert starts_between({"one": 1}, after) == starts
