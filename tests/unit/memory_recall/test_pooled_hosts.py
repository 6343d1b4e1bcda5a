"""A pooler of a provider is named by its host, before anything is connected to, with the host to use instead."""

import pytest

from memory_recall.errors import PoolerRefused
from memory_recall.postgres.connection import DsnText
from memory_recall.postgres.connection_uri import parse
from memory_recall.postgres.pooled_hosts import refuse_pooled_hosts
from memory_recall.postgres.session import opened_session

POOLED = [
    ("ep-cool-darkness-123456-pooler.us-east-2.aws.neon.tech", "Neon", "Take -pooler out"),
    ("EP-cool-darkness-123456-pooler.c-2.eu-central-1.aws.neon.tech.", "Neon", "Take -pooler out"),
    ("aws-0-eu-west-1.pooler.supabase.com:6543", "Supabase", "db.PROJECT.supabase.co:5432"),
    ("aws-0-eu-west-1.pooler.supabase.com:5432", "Supabase", "db.PROJECT.supabase.co:5432"),
    ("db.abcdefghijklmnop.supabase.co:6543", "Supabase", "port 5432"),
    ("notes.proxy-c1x2y3.eu-west-1.rds.amazonaws.com", "RDS Proxy", "writer endpoint"),
    ("read.endpoint.proxy-c1x2y3.eu-west-1.rds.amazonaws.com", "RDS Proxy", "writer endpoint"),
    ("hippo-pgbouncer.postgres-operator.svc", "PgBouncer", "CLUSTER-primary"),
    ("acid-notes-pooler.default.svc.cluster.local", "pooler", "with Zalando's operator CLUSTER"),
    ("acid-notes-pooler-repl", "pooler", "with Zalando's operator CLUSTER"),
]
DIRECT = [
    "ep-cool-darkness-123456.us-east-2.aws.neon.tech",
    "db.abcdefghijklmnop.supabase.co",
    "notes.c1x2y3.eu-west-1.rds.amazonaws.com",
    "proxy.c1x2y3.eu-west-1.rds.amazonaws.com",
    "notes.cluster-c1x2y3.eu-west-1.rds.amazonaws.com",
    "hippo-primary.postgres-operator.svc",
    "acid-notes.default.svc.cluster.local",
    "pg-rw.dbaas.svc",
    "pooler.example.com",
    "[fd00::1]",
]


@pytest.mark.parametrize(("host", "what", "remedy"), POOLED)
async def test_a_pooler_is_named_with_the_host_to_use_instead(host: str, what: str, remedy: str) -> None:
    """Without a connection: no such host is known here."""
    with pytest.raises(PoolerRefused) as refused:
        async with opened_session(DsnText(f"postgresql://u:p@{host}/d"), "test"):
            pass
    assert what in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize("host", DIRECT)
def test_every_other_host_may_be_a_server(host: str) -> None:
    """What it is, its session tells."""
    refuse_pooled_hosts(parse(f"postgresql://u:p@{host}:5432/d").servers)


def test_one_pooler_among_several_hosts_is_enough() -> None:
    """A failover would lead there."""
    with pytest.raises(PoolerRefused):
        refuse_pooled_hosts(parse("postgresql://u:p@pg-rw,acid-notes-pooler/d").servers)
