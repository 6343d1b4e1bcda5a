"""The configuration files of the node's components, as text.

Each value that differs from a default has its reason beside it. JSON is YAML, so no YAML library is needed here.
"""

import json

from devcluster.node import addons
from devcluster.node.layout import (
    CLUSTER_CIDR,
    CONTAINERD_SOCKET,
    DNS_SERVICE_ADDRESS,
    FIRST_POD_ADDRESS,
    INSIDE,
    NODE_ADDRESS,
    NODE_NAME,
    POD_SUBNET,
    Layout,
)

OPERATOR_USER = "system:serviceaccount:memory-index-system:memory-operator"
CNI_PLUGIN_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin")


def files(*, cgroup: str, pause_image: str, snapshotter: str, cni_plugins: str, volumes: int) -> dict[str, str]:
    """Return the text of each configuration file, by its path below the configuration directory."""
    layout = Layout(INSIDE)
    return {
        "containerd.toml": containerd(layout, pause_image, snapshotter, cni_plugins),
        "cni/10-pods.conflist": _json(_cni()),
        "kubelet.yaml": _json(_kubelet(layout, cgroup)),
        "proxy.yaml": _json(_proxy(layout)),
        "audit.yaml": _json(_audit()),
        "Corefile": corefile(layout),
        "addon-dns.json": _json(addons.as_list(addons.dns())),
        "addon-storage.json": _json(addons.as_list(addons.storage(volumes))),
        "resolv.conf": f"nameserver {DNS_SERVICE_ADDRESS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n",
        "hosts": f"127.0.0.1 localhost\n{NODE_ADDRESS} {NODE_NAME}\n",
    }


def containerd(layout: Layout, pause_image: str, snapshotter: str, cni_plugins: str) -> str:
    """Return containerd's configuration in the format of containerd 1.6, which containerd 2 converts when it starts."""
    # Without CAP_SYS_RESOURCE nobody may lower a score, so containerd must not ask for it.
    return f"""version = 2
root = "{layout.data}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{layout.config}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{layout.registries}"
"""


def corefile(layout: Layout) -> str:
    """Return CoreDNS's configuration: names of the cluster resolve, and no other name exists.

    It has two server blocks, because in one block the plugin `template` would always come before `kubernetes`.
    """
    return f"""cluster.local:53 {{
  bind {NODE_ADDRESS}
  errors
  ready {NODE_ADDRESS}:8181
  kubernetes cluster.local {{
    kubeconfig {layout.internal_kubeconfig("coredns")}
    pods insecure
    ttl 5
  }}
}}
.:53 {{
  bind {NODE_ADDRESS}
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def _cni() -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_SUBNET, "rangeStart": FIRST_POD_ADDRESS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/ipam",
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(layout: Layout, cgroup: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet-server.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "failSwapOn": False,
        # Many machines still have cgroups of version 1, which the kubelet refuses by default.
        "failCgroupV1": False,
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(layout.logs / "pods"),
        # The disk belongs to the machine's owner: a nearly full one must not evict the cluster's pods.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        # Names outside the cluster do not exist for pods.
        "resolvConf": "",
        "serializeImagePulls": False,
        # kube-proxy works with nftables; nothing here needs chains of the older kind.
        "makeIPTablesUtilChains": False,
        "registerNode": True,
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "volumePluginDir": str(layout.data / "volume-plugins"),
    }


def _proxy(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.internal_kubeconfig("proxy"))},
        "mode": "nftables",
        "clusterCIDR": CLUSTER_CIDR,
        "hostnameOverride": NODE_NAME,
        # The connection-tracking limits are the host's and cannot be changed from a namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "nftables": {"minSyncPeriod": "100ms"},
    }


def _audit() -> dict[str, object]:
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            # How much the operator reads is measured, and its roles are compared with what it does.
            {"level": "Metadata", "users": [OPERATOR_USER]},
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "Metadata"},
        ],
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
