"""The rights that the chart grants: exactly what the operator needs, and no list of Secrets."""

from typing import Any

import pytest

from tests.unit.chart.conftest import Objects, Render

Rights = dict[tuple[str, str], set[str]]

NEEDED: Rights = {
    ("memory-index.dev", "memoryindexes/status"): {"patch"},
    ("memory-index.dev", "memoryindexes/finalizers"): {"update"},
    ("", "secrets"): {"get"},
    ("", "pods"): {"list", "watch"},
    ("", "services"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "persistentvolumeclaims"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "configmaps"): {"get", "list", "watch", "create", "patch", "delete"},
    ("apps", "deployments"): {"get", "list", "watch", "create", "patch", "delete"},
    ("apps", "replicasets"): {"list", "watch"},
    ("batch", "jobs"): {"get", "list", "watch", "create", "patch", "delete"},
    ("networking.k8s.io", "networkpolicies"): {"get", "list", "watch", "create", "patch", "delete"},
    ("policy", "poddisruptionbudgets"): {"get", "list", "watch", "create", "patch", "delete"},
}
DATABASES: Rights = {
    ("", "services"): {"get"},
    ("", "secrets"): {"get"},
    ("postgresql.cnpg.io", "clusters"): {"get"},
    ("postgresql.cnpg.io", "databases"): {"get", "list", "create", "patch", "delete"},
    ("", "events"): {"create"},
}
WATCHED_DATABASES: Rights = {
    ("postgresql.cnpg.io", "clusters"): {"get", "list", "watch"},
    ("postgresql.cnpg.io", "databases"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "events"): {"create"},
}
DELETION: Rights = {
    ("", "namespaces"): {"get"},
    ("memory-index.dev", "memoryindexes"): {"get", "list", "watch", "patch"},
}
LEASE: Rights = {("coordination.k8s.io", "leases"): {"create", "get", "update"}}
DISCOVERY: Rights = {("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"}}


def rights(*roles: dict[str, Any]) -> Rights:
    """Verbs by API group and resource."""
    found: Rights = {}
    for role in roles:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def roles(objects: Objects, kind: str) -> Objects:
    """The roles of one kind that are the operator's own."""
    return [
        body
        for body in objects
        if body["kind"] == kind and not any("aggregate-to" in label for label in body["metadata"]["labels"])
    ]


@pytest.mark.promise("token-without-secret-lists")
def test_no_rule_holds_a_wildcard(everything: Objects) -> None:
    for body in everything:
        for rule in body.get("rules") or ():
            granted = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not any("*" in word for word in granted), body["metadata"]["name"]


@pytest.mark.promise("token-without-secret-lists")
def test_secrets_can_be_read_by_name_only(everything: Objects) -> None:
    """Without list and watch, an attacker in the operator cannot learn the names of Secrets."""
    for body in everything:
        for (group, resource), verbs in rights(body).items() if body.get("rules") else ():
            assert (group, resource) != ("", "secrets") or verbs == {"get"}


@pytest.mark.promise("token-without-secret-lists")
def test_cluster_role_grants_what_the_operator_needs_and_no_more(render: Render) -> None:
    (role,) = roles(render({}), "ClusterRole")
    assert rights(role) == NEEDED | WATCHED_DATABASES | DELETION | DISCOVERY


@pytest.mark.promise("token-bound-to-namespaces")
def test_watched_namespaces_replace_every_cluster_wide_right_but_that_to_let_a_namespace_go(render: Render) -> None:
    """A namespace's Role may be deleted before its objects, which then keep the finalizer for ever."""
    objects = render({"watchNamespaces": ["memory"], "databaseNamespaces": ["dbaas"]})
    (role,) = roles(objects, "ClusterRole")
    assert rights(role) == DELETION
    by_namespace = {
        namespace: rights(*(role for role in roles(objects, "Role") if role["metadata"]["namespace"] == namespace))
        for namespace in ("memory", "dbaas")
    }
    assert by_namespace == {"memory": DATABASES | NEEDED, "dbaas": DATABASES}


def test_no_right_but_reading_services_and_secrets_is_granted_twice_where_memory_indexes_are(render: Render) -> None:
    """The audit log names only one of the roles that grant a request, so an unused second grant could not be found."""
    objects = roles(render({"watchNamespaces": ["memory"]}), "Role")
    found = {body["metadata"]["name"]: rights(body) for body in objects if body["metadata"]["namespace"] == "memory"}
    workloads, databases = found["memory-operator"], found["memory-operator-databases"]
    twice = {resource: workloads[resource] & databases[resource] for resource in workloads.keys() & databases.keys()}
    assert twice == {("", "services"): {"get"}, ("", "secrets"): {"get"}}


def test_the_secrets_that_may_be_read_beside_databases_can_be_named(render: Render) -> None:
    values = {"watchNamespaces": ["memory"], "databaseNamespaces": ["dbaas"], "cnpg": {"authoritySecrets": ["pg-ca"]}}
    found = [role for role in roles(render(values), "Role") if role["metadata"]["namespace"] == "dbaas"]
    rules = [rule for role in found for rule in role["rules"] if "secrets" in rule["resources"]]
    assert rules == [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pg-ca"], "verbs": ["get"]}]


@pytest.mark.promise("token-without-databases")
@pytest.mark.finding("D29")
def test_the_right_to_write_database_objects_can_be_withheld(render: Render) -> None:
    for values in ({}, {"watchNamespaces": ["memory"]}):
        objects = render({**values, "cnpg": {"manageDatabases": False}})
        granted = rights(*roles(objects, "Role"), *roles(objects, "ClusterRole"))
        assert granted["postgresql.cnpg.io", "databases"] <= {"get", "list", "watch"}
        assert granted["postgresql.cnpg.io", "clusters"] <= {"get", "list", "watch"}


def test_the_lease_is_granted_in_the_namespace_of_the_release_alone_and_by_its_name(render: Render) -> None:
    for values in ({}, {"watchNamespaces": ["memory"]}):
        (role,) = (body for body in roles(render(values), "Role") if body["metadata"]["name"].endswith("-lease"))
        assert role["metadata"]["namespace"] == "memory-index-system"
        assert rights(role) == LEASE
        assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["memory-operator"]]


def test_every_role_is_bound_to_the_operator(render: Render) -> None:
    for values in ({}, {"watchNamespaces": ["a", "b"], "databaseNamespaces": ["b", "c"]}):
        objects = render(values)
        granted = {
            (body["metadata"].get("namespace"), body["metadata"]["name"])
            for body in roles(objects, "Role") + roles(objects, "ClusterRole")
        }
        bindings = [body for body in objects if body["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
        assert {(body["metadata"].get("namespace"), body["roleRef"]["name"]) for body in bindings} == granted
        assert {(subject["name"], subject["namespace"]) for body in bindings for subject in body["subjects"]} == {
            ("memory-operator", "memory-index-system")
        }


def test_users_rights_come_with_the_cluster_roles_they_have(render: Render) -> None:
    aggregated = {
        label.removeprefix("rbac.authorization.k8s.io/aggregate-to-"): rights(body)
        for body in render({})
        if body["kind"] == "ClusterRole"
        for label in body["metadata"]["labels"]
        if "aggregate-to" in label
    }
    assert aggregated["view"] == {
        ("memory-index.dev", "memoryindexes"): {"get", "list", "watch"},
        ("memory-index.dev", "memoryindexes/status"): {"get", "list", "watch"},
    }
    assert {"create", "update", "patch", "delete"} <= aggregated["edit"]["memory-index.dev", "memoryindexes"]
    assert aggregated.keys() == {"view", "edit", "admin"}
    assert not any("status" in resource for _, resource in aggregated["admin"])
