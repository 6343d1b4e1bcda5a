"""Names the connection poolers of providers by their hosts, before anything is connected to.

A pooler is also found out by its session. By the name of its host it is found out sooner, and the remedy can say which
host of the same provider leads to the server itself.
"""

import re
from collections.abc import Iterable

from memory_recall.errors import PoolerRefused
from memory_recall.postgres.connection_uri import Server

_POOLERS = (
    (
        re.compile(r"ep-[a-z0-9-]+-pooler\.([a-z0-9-]+\.)*neon\.tech"),
        "the pooler of Neon",
        "Take -pooler out of the host's name, or switch off connection pooling where Neon shows the string.",
    ),
    (
        re.compile(r"([a-z0-9-]+\.)*pooler\.supabase\.com"),
        "the pooler of Supabase",
        "Use the direct connection, db.PROJECT.supabase.co:5432, which has IPv6, and IPv4 with Supabase's add-on.",
    ),
    (
        re.compile(r"[a-z0-9-]+(\.endpoint)?\.proxy-[a-z0-9]+\.[a-z0-9-]+\.rds\.amazonaws\.com(\.cn)?"),
        "RDS Proxy",
        "Use the endpoint of the instance, or the writer endpoint of the Aurora cluster.",
    ),
    (
        re.compile(r"[a-z0-9-]+-pgbouncer(\.[a-z0-9-]+(\.svc(\.cluster\.local)?)?)?"),
        "the PgBouncer of a cluster",
        "Use the Service of the primary, with Crunchy's operator CLUSTER-primary.",
    ),
    (
        re.compile(r"[a-z0-9-]+-pooler(-repl)?(\.[a-z0-9-]+(\.svc(\.cluster\.local)?)?)?"),
        "the pooler of a cluster",
        "Use the Service of the primary: with Zalando's operator CLUSTER, with CloudNativePG CLUSTER-rw.",
    ),
)
_SUPABASE_DEDICATED = (re.compile(r"db\.[a-z0-9]+\.supabase\.co"), 6543)


def refuse_pooled_hosts(servers: Iterable[Server]) -> None:
    """Refuse a connection string one of whose hosts is known as a pooler of a provider by its name.

    Raises:
        PoolerRefused: one is.
    """
    for server in servers:
        host = server.host.lower().rstrip(".")
        for pattern, what, remedy in _POOLERS:
            if pattern.fullmatch(host):
                raise PoolerRefused(f"The host of the connection string is {what}.", remedy)
        if _SUPABASE_DEDICATED[0].fullmatch(host) and server.port == _SUPABASE_DEDICATED[1]:
            raise PoolerRefused("The port of the connection string is that of Supabase's pooler.", "Use port 5432.")
