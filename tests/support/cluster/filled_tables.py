"""Tables of embedded rows as the Jobs of MemoryIndex objects would leave them, made by a script in a pod."""

import json
from collections.abc import Iterable
from pathlib import Path

from devcluster.demo import objects
from tests.support.cluster.api import Object
from tests.support.cluster.platform import Platform

ROWS = 10
_SCRIPT = Path(__file__).with_name("fill_tables.py")


def fill(platform: Platform, namespace: str, entries: Iterable[tuple[str, Object]], system_identifier: str) -> None:
    """Create tables of embedded rows in the database that the toolbox pod of the namespace is connected to.

    Each entry is the name of a table and the metadata of the MemoryIndex that claims it.
    """
    tables = [
        {
            "table": table,
            "claim": {
                "system_identifier": system_identifier,
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "created_at": metadata["creationTimestamp"],
                "cluster_name": platform.postgres.name,
            },
        }
        for table, metadata in entries
    ]
    arguments = ("exec", "-i", objects.TOOLBOX, "--", "python", "-c", _SCRIPT.read_text(encoding="utf-8"))
    platform.cluster.kubectl("-n", namespace, *arguments, input=json.dumps({"rows": ROWS, "tables": tables}))
