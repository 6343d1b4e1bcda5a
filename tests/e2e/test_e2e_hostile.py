"""Twelve hostile objects: none changes anything outside its namespace, learns a key, or holds up the operator."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.hostile.objects import HOSTILE, Scene, opened_scene, refuse
from tests.support.cluster.platform import Platform

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """A team whose index is ready, and a Postgres server of the hostile author's own."""
    platform.postgres.wait_ready()
    with opened_scene(platform) as opened:
        yield opened


@pytest.mark.promise("cluster-by-consent", case="foreign-cluster")
@pytest.mark.promise("owner-unchanged", case="foreign-owner")
@pytest.mark.promise("secret-by-label", case="foreign-key")
@pytest.mark.promise("others-objects-untouched", case="taken-service")
@pytest.mark.promise("others-objects-untouched", case="taken-deployment")
@pytest.mark.promise("others-objects-untouched", case="taken-database-object")
@pytest.mark.promise("others-tables-untouched", case="taken-table")
@pytest.mark.promise("hostile-embedder-bounded", case="packed-answer")
@pytest.mark.promise("hostile-embedder-bounded", case="endless-answer")
@pytest.mark.promise("hostile-embedder-bounded", case="link-local-url")
@pytest.mark.promise("same-database-only", case="foreign-server")
@pytest.mark.finding("D1", case="foreign-cluster")
@pytest.mark.finding("D1", case="foreign-owner")
@pytest.mark.finding("D17", case="taken-service")
@pytest.mark.finding("D17", case="taken-deployment")
@pytest.mark.finding("D17", case="taken-database-object")
@pytest.mark.finding("D30", case="taken-table")
@pytest.mark.finding("H4", case="foreign-key")
@pytest.mark.finding("H5", case="foreign-server")
@pytest.mark.finding("H6", case="packed-answer")
@pytest.mark.finding("H6", case="endless-answer")
@pytest.mark.finding("M9", case="link-local-url")
@pytest.mark.finding("H5", case="foreign-cluster")
@pytest.mark.finding("H5", case="foreign-owner")
@pytest.mark.finding("H5", case="taken-service")
@pytest.mark.finding("H5", case="taken-deployment")
@pytest.mark.finding("H5", case="taken-database-object")
@pytest.mark.finding("L10", case="taken-service")
@pytest.mark.finding("L10", case="taken-deployment")
@pytest.mark.finding("L10", case="taken-database-object")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_refused_by_name_and_changes_nothing_outside_its_namespace(scene: Scene, name: str) -> None:
    refuse(scene, name)
