"""Build the ConfigMaps with copies of authorities' certificates, which workers see as files.

Certificates are no secret, but they are often in a Secret beside a private key, or in another namespace, and no pod can
mount a Secret of another one. Workers read the files anew at each connect, so a rotated authority is followed without a
restart.
"""

from collections.abc import Mapping

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import metadata, with_fingerprint

KIND = "ConfigMap"


def certificates_config_map(index: MemoryIndex, component: str, files: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap of a component, which holds these files of certificates and nothing else."""
    return with_fingerprint(
        {
            "apiVersion": "v1",
            "kind": KIND,
            "metadata": metadata(index, f"{index.name}-{component}", component),
            "data": dict(files),
        }
    )
