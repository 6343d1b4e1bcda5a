"""Twelve hostile objects: none changes anything outside its namespace, learns a key, or holds up the operator."""

from collections.abc import Iterator

import pytest

from memory_bench.operator.hostile_objects import HOSTILE, Scene, opened_scene, refuse
from memory_bench.operator.platform import Platform

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """A team whose index is ready, and a Postgres server of the hostile author's own."""
    platform.postgres.wait_ready()
    with opened_scene(platform) as opened:
        yield opened


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_refused_by_name_and_changes_nothing_outside_its_namespace(scene: Scene, name: str) -> None:
    refuse(scene, name)
