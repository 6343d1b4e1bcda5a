"""Build the ConfigMap with the certificates of the authority that the workers trust for the database.

The certificates are copied, because a CloudNativePG Cluster keeps them in a Secret of its own namespace, together with
the authority's private key.
"""

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.certificates import certificates_config_map

KEY = "ca.crt"
CA_DIRECTORY = "/var/run/memory-index-database-ca"
CA_FILE = f"{CA_DIRECTORY}/{KEY}"
_COMPONENT = "database-ca"


def ca_name(index: MemoryIndex) -> str:
    """Return the name of the ConfigMap."""
    return f"{index.name}-{_COMPONENT}"


def ca_config_map(index: MemoryIndex, certificates: str) -> Manifest:
    """Return the ConfigMap that holds these certificates and nothing else."""
    return certificates_config_map(index, _COMPONENT, {KEY: certificates})


def ca_volume(index: MemoryIndex) -> Manifest:
    """Return the volume by which a pod sees the certificates as a file."""
    return {"name": _COMPONENT, "configMap": {"name": ca_name(index), "items": [{"key": KEY, "path": KEY}]}}


def ca_mount() -> Manifest:
    """Return where a container sees that file."""
    return {"name": _COMPONENT, "mountPath": CA_DIRECTORY, "readOnly": True}
