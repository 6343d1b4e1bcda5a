"""The toolbox pod in the user's namespace, and the pods that the diagnosis lists."""

from typing import Any

import pytest

from devcluster.demo.diagnosis import unhealthy_pods
from devcluster.demo.objects import toolbox


def test_the_toolbox_meets_the_restricted_pod_security_standard_and_reads_the_dsn_from_a_file() -> None:
    pod = toolbox(
        "space", image="localhost/memory-operator:dev", secret="creds", key="uri", embedder_url="http://e:8080"
    )
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert not spec["automountServiceAccountToken"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment["MEMORY_DATABASE_URL_FILE"] == "/var/run/memory-index/dsn"
    assert spec["volumes"][0]["secret"] == {"secretName": "creds", "items": [{"key": "uri", "path": "dsn"}]}
    assert "sh" not in container["command"], "the image has no shell"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Succeeded"}, []),
        ({"phase": "Running", "containerStatuses": [{"ready": True}]}, []),
        ({"phase": "Running", "containerStatuses": [{"ready": False}]}, ["pod"]),
        ({"phase": "Pending"}, ["pod"]),
        ({"phase": "Failed", "containerStatuses": [{"ready": False}]}, ["pod"]),
    ],
)
def test_pods_that_neither_run_nor_succeeded_are_listed(status: dict[str, Any], expected: list[str]) -> None:
    assert unhealthy_pods({"items": [{"metadata": {"name": "pod"}, "status": status}]}) == expected
