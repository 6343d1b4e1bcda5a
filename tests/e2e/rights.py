"""The rights that the operator's roles grant, and those of them that its requests have used.

The API server's audit log names the role that allowed a request. So each role is compared with its own requests, also
where the operator has run both cluster-wide and bound to namespaces in one log.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_ALLOWED_BY = re.compile(r'^RBAC: allowed by \w+ "[^"]*" of (\w+) "([^"]*)"')
_CREATED = 201


class Role(NamedTuple):
    """A ClusterRole, or the Roles of one name in all namespaces."""

    kind: str
    name: str


class Right(NamedTuple):
    """What a rule grants; the resource with its subresource."""

    verb: str
    group: str
    resource: str


Rights = Mapping[Role, set[Right]]


def granted(objects: Iterable[Mapping[str, Any]], *, account: str) -> Rights:
    """Return the rights of every role among the chart's objects that is bound to the service account."""
    bodies = list(objects)
    rules: dict[Role, set[Right]] = {}
    for body in bodies:
        if body["kind"] in {"Role", "ClusterRole"}:
            rules.setdefault(Role(body["kind"], body["metadata"]["name"]), set()).update(_rights(body["rules"]))
    bindings = [body for body in bodies if body["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
    bound = [body["roleRef"] for body in bindings if account in {subject["name"] for subject in body["subjects"]}]
    return {role: rules[role] for role in {Role(reference["kind"], reference["name"]) for reference in bound}}


def used(lines: Iterable[str], *, user: str) -> Rights:
    """Return the rights by which each role allowed a request of the user, from the lines of the audit log.

    A server-side apply that creates an object is one request, for which `create` is needed as well as `patch`.
    """
    found: dict[Role, set[Right]] = {}
    for entry in _entries(lines, user):
        allowed = _ALLOWED_BY.match(entry.get("annotations", {}).get("authorization.k8s.io/reason", ""))
        reference = entry.get("objectRef")
        if not allowed or not reference:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        verbs = [entry["verb"]]
        if entry["verb"] == "patch" and entry.get("responseStatus", {}).get("code") == _CREATED:
            verbs.append("create")
        rights = found.setdefault(Role(allowed[1], allowed[2]), set())
        rights.update(Right(verb, reference.get("apiGroup", ""), resource) for verb in verbs)
    return found


def unused(given: Rights, taken: Rights) -> Rights:
    """Return the rights that a role grants and no request has used, of the roles that have any."""
    left = {role: rights - taken.get(role, set()) for role, rights in given.items()}
    return {role: rights for role, rights in left.items() if rights}


def _rights(rules: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from (Right(verb, group, resource) for verb in rule["verbs"])


def _entries(lines: Iterable[str], user: str) -> Iterator[Mapping[str, Any]]:
    """Return the log's entries about the user; an incomplete last line is ignored."""
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if entry["user"].get("username") == user:  # a refused request may have none
            yield entry
