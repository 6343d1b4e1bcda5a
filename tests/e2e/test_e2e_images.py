"""Our images as a cluster with strict rules for pods runs them."""

import json

import pytest

from tests.support.cluster.platform import Platform

pytestmark = pytest.mark.cluster
ASSIGNED = 1000680000


@pytest.mark.promise("restricted-pods")
@pytest.mark.parametrize(
    ("image", "command", "module"),
    [
        ("localhost/memory-operator:dev", "memory --help", "memory_recall.cli.app"),
        ("localhost/memory-embedder:dev", "memory-embedder --help", "memory_embedder.cli"),
    ],
    ids=["operator", "embedder"],
)
@pytest.mark.parametrize("user", [65532, ASSIGNED], ids=["own", "assigned"])
def test_our_images_run_without_root_and_without_writing_and_have_their_bytecode(
    platform: Platform, image: str, command: str, module: str, user: int
) -> None:
    """In a namespace under the restricted standard, with a read-only root, as the image's own user or any other.

    A user that a cluster assigns has no name, no home and the group of root, as with OpenShift.
    Without bytecode that is up to date, every start would compile hundreds of modules again.
    """
    cluster = platform.postgres.cluster
    space = f"{image.split('/')[1].split(':', maxsplit=1)[0]}-restricted-{user}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": labels}})
    checks = (
        "id -u",
        f"{command} > /dev/null && echo works",
        "touch /opt/venv/x 2> /dev/null || echo read-only",
        f"python3 -c 'import {module}' && echo imports",
        f"python3 -v -c 'import {module}' 2>&1 | grep -c -e 'bytecode is stale' -e '# code object from /'",
        "found=bare; for program in gcc cc pip; do command -v $program && found=; done; echo $found",
    )
    pod = _restricted_pod(image, "; ".join(checks), user)
    cluster.kubectl("-n", space, "apply", "--filename=-", input=json.dumps(pod))
    cluster.kubectl("-n", space, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/trial", "--timeout=240s")
    expected = [str(user), "works", "read-only", "imports", "0", "bare"]
    assert cluster.kubectl("-n", space, "logs", "trial").split() == expected
    cluster.kubectl("delete", "namespace", space, "--wait=false")


def _restricted_pod(image: str, script: str, user: int) -> dict[str, object]:
    secured = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **({"runAsUser": user, "runAsGroup": 0} if user == ASSIGNED else {}),
    }
    container = {"name": "trial", "image": image, "command": ["sh", "-c", script], "securityContext": secured}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
