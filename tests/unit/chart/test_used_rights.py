"""How the roles of the chart are compared with the requests in an audit log."""

import json
from typing import Any

from tests.e2e.rights import Right, Role, granted, unused, used
from tests.unit.chart.conftest import Render

USER = "system:serviceaccount:memory-index-system:memory-operator"
ROLE, CLUSTER_ROLE = Role("Role", "memory-operator"), Role("ClusterRole", "memory-operator")


def entry(verb: str, *, role: Role = CLUSTER_ROLE, user: str = USER, code: int = 200, **reference: str) -> str:
    """A line of the log as the API server writes it, without what is not read."""
    subject = 'to ServiceAccount "memory-operator/memory-index-system"'
    reason = f'RBAC: allowed by {role.kind}Binding "memory-operator/team" of {role.kind} "{role.name}" {subject}'
    body: dict[str, Any] = {
        "verb": verb,
        "user": {"username": user},
        "objectRef": reference,
        "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": reason},
    }
    return json.dumps(body)


def test_a_request_uses_the_right_of_the_role_that_allowed_it() -> None:
    lines = [
        entry("get", resource="secrets", namespace="team", name="dsn"),
        entry("patch", role=ROLE, apiGroup="memory-index.dev", resource="memoryindexes", subresource="status"),
    ]
    assert used(lines, user=USER) == {
        CLUSTER_ROLE: {Right("get", "", "secrets")},
        ROLE: {Right("patch", "memory-index.dev", "memoryindexes/status")},
    }


def test_an_apply_that_creates_an_object_uses_the_right_to_create_too() -> None:
    lines = [entry("patch", apiGroup="batch", resource="jobs", code=201)]
    assert used(lines, user=USER)[CLUSTER_ROLE] == {Right("patch", "batch", "jobs"), Right("create", "batch", "jobs")}


def test_requests_of_others_and_what_no_role_allowed_use_no_right() -> None:
    forbidden = json.loads(entry("patch", resource="services"))
    forbidden["annotations"] = {"authorization.k8s.io/decision": "forbid"}
    no_object = json.loads(entry("get"))
    del no_object["objectRef"]
    lines = [entry("get", user="somebody", resource="secrets"), json.dumps(forbidden), json.dumps(no_object), '{"ver']
    assert used(lines, user=USER) == {}


def test_the_rights_of_a_role_are_those_in_all_namespaces_and_only_where_it_is_bound(render: Render) -> None:
    given = granted(render({"watchNamespaces": ["a", "b"]}), account="memory-operator")
    assert given.keys() == {
        ROLE,
        Role("Role", "memory-operator-databases"),
        Role("Role", "memory-operator-lease"),
        Role("ClusterRole", "memory-operator-deletion"),
    }
    assert Right("get", "", "secrets") in given[ROLE]
    assert granted(render({}), account="somebody") == {}


def test_what_no_request_has_used_is_left() -> None:
    given = {
        CLUSTER_ROLE: {Right("get", "", "secrets"), Right("list", "", "secrets")},
        ROLE: {Right("get", "", "pods")},
    }
    taken = {CLUSTER_ROLE: {Right("get", "", "secrets")}, ROLE: {Right("get", "", "pods")}}
    assert unused(given, taken) == {CLUSTER_ROLE: {Right("list", "", "secrets")}}
