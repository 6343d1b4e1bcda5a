"""Build the ConfigMap with the certificates by which workers verify embedders that the operator runs.

There is a file for each embedder, whose name tells whose it is: during a swap away from a shared embedder, workers call
that one and the object's own.
"""

from collections.abc import Mapping

from memory_operator.api.embedder import CaConfigMap
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.certificates import certificates_config_map

_COMPONENT = "embedder-ca"


def copied_authority(index: MemoryIndex, owner: tuple[str, str]) -> CaConfigMap:
    """Return where workers of an object find the authority of the embedder that another, or the object itself, owns.

    `owner` is the namespace and the name of the MemoryIndex with the embedder.
    """
    namespace, name = owner
    return CaConfigMap(name=f"{index.name}-{_COMPONENT}", key=f"{namespace}.{name}.crt")


def embedder_ca_config_map(index: MemoryIndex, files: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap that holds these files."""
    return certificates_config_map(index, _COMPONENT, files)
