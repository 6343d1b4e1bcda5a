"""The Kubernetes objects that a new cluster needs: CoreDNS's Service and RBAC objects, a StorageClass, and volumes."""

from typing import Any

from devcluster.node.layout import DNS_SERVICE_ADDRESS, INSIDE, NODE_ADDRESS, NODE_NAME, Layout

STORAGE_CLASS = "local"
VOLUME_COUNT = 64
VOLUME_SIZE = "10Gi"
_DNS_PORTS = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]


def dns() -> list[dict[str, Any]]:
    """Return the Service of CoreDNS, and the RBAC objects that CoreDNS needs."""
    return [*_dns_rights(), *_dns_service()]


def storage(volumes: int) -> list[dict[str, Any]]:
    """Return the default StorageClass, and `volumes` PersistentVolumes of that class."""
    return [_storage_class(), *(_volume(index) for index in range(volumes))]


def as_list(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine Kubernetes objects into one List object for kubectl."""
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _dns_rights() -> list[dict[str, Any]]:
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods", "endpoints"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "devcluster:coredns"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "coredns"}
    metadata = {"name": "devcluster:coredns"}
    return [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [user],
        },
    ]


def _dns_service() -> list[dict[str, Any]]:
    """Return a Service without a selector, and its EndpointSlice.

    A selector could not find CoreDNS, because CoreDNS runs as a process of the node and not in a pod.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_SERVICE_ADDRESS, "ports": _DNS_PORTS},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_ADDRESS]}],
            "ports": _DNS_PORTS,
        },
    ]


def _storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(index: int) -> dict[str, Any]:
    """Return a `local` PersistentVolume.

    Postgres needs its volume to have the pod's fsGroup, which kubelet sets on `local` volumes but not on hostPath
    volumes.
    """
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{index:02}"},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": str(Layout(INSIDE).volumes / f"pv-{index:02}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
    }
