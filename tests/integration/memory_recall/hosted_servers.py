"""Databases with the roles and rights that hosted servers and other operators of Postgres give to their users."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import asyncpg

from tests.integration.conftest import Database

PASSWORD = "hosted-password"
MARK = "k3v9d0q7x2m5b8n1"
WITHOUT_IDENTIFIER = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"


@dataclass(frozen=True)
class Provider:
    """What a provider does before its user gets a role, in which {db} is the database and {role} the user's role.

    `by_user` is what its page has the user run. `tells` says whether the user may read the system identifier.
    """

    setup: tuple[str, ...]
    cleanup: tuple[str, ...] = ()
    by_user: tuple[str, ...] = ()
    tells: bool = True


LOGIN = f"CREATE ROLE {{role}} LOGIN PASSWORD '{PASSWORD}' NOSUPERUSER"
MARKING = f"COMMENT ON DATABASE {{db}} IS 'memory-index:{MARK}'"
PROVIDERS = {
    "rds": Provider(
        (
            "CREATE ROLE {role}_rds_superuser NOLOGIN NOSUPERUSER",
            f"{LOGIN} CREATEROLE CREATEDB IN ROLE {{role}}_rds_superuser",
            "ALTER DATABASE {db} OWNER TO {role}",
            "CREATE EXTENSION IF NOT EXISTS vector",
            WITHOUT_IDENTIFIER,
        ),
        ("{role}_rds_superuser",),
        (MARKING,),
        tells=False,
    ),
    "neon": Provider(
        (
            "CREATE ROLE {role}_neon_superuser NOLOGIN NOSUPERUSER CREATEROLE CREATEDB BYPASSRLS REPLICATION",
            f"{LOGIN} CREATEROLE CREATEDB BYPASSRLS IN ROLE {{role}}_neon_superuser",
            "ALTER DATABASE {db} OWNER TO {role}",
            "CREATE EXTENSION IF NOT EXISTS vector",
            WITHOUT_IDENTIFIER,
        ),
        ("{role}_neon_superuser",),
        (MARKING,),
        tells=False,
    ),
    "supabase": Provider(
        (
            f"{LOGIN} CREATEROLE CREATEDB BYPASSRLS REPLICATION",
            "ALTER DATABASE {db} OWNER TO {role}",
            "CREATE SCHEMA extensions",
            "GRANT USAGE ON SCHEMA extensions TO PUBLIC",
            "CREATE EXTENSION vector SCHEMA extensions",
            'ALTER ROLE {role} SET search_path = "$user", public, extensions',
            WITHOUT_IDENTIFIER,
        ),
        by_user=(MARKING,),
        tells=False,
    ),
    "zalando": Provider(
        (
            "CREATE ROLE {role}_owner NOLOGIN NOSUPERUSER",
            f"{LOGIN} IN ROLE {{role}}_owner",
            "ALTER DATABASE {db} OWNER TO {role}_owner",
            "CREATE SCHEMA data AUTHORIZATION {role}_owner",
            "ALTER ROLE {role} SET role = '{role}_owner'",
            "ALTER ROLE {role} SET search_path = data, public",
            "CREATE EXTENSION IF NOT EXISTS vector",
        ),
        ("{role}_owner",),
    ),
    "crunchy": Provider(
        (
            LOGIN,
            "ALTER DATABASE {db} OWNER TO postgres",
            "GRANT ALL PRIVILEGES ON DATABASE {db} TO {role}",
            "CREATE SCHEMA {role} AUTHORIZATION {role}",
            "CREATE EXTENSION IF NOT EXISTS vector",
        ),
    ),
}


@contextlib.asynccontextmanager
async def hosted(database: Database, provider: Provider, *, marked: bool = True) -> AsyncIterator[Database]:
    """The database as a provider's user reaches it, who has done what the page says; roles are dropped at the end."""
    role = f"{database.name}_user"
    names = {"db": database.name, "role": role}
    admin = await asyncpg.connect(database.superuser_dsn)
    user = replace(database, dsn=f"postgresql://{role}:{PASSWORD}@{database.dsn.rpartition('@')[2]}")
    try:
        for statement in provider.setup:
            await admin.execute(statement.format(**names))
        if marked:
            async with user.connection() as connection:
                for statement in provider.by_user:
                    await connection.execute(statement.format(**names))
        yield user
    finally:
        await admin.close()
        admin = await asyncpg.connect(database.superuser_dsn)  # the test may have restarted the server
        await admin.execute(f"ALTER DATABASE {database.name} OWNER TO postgres")
        for name in (role, *(one.format(**names) for one in provider.cleanup)):
            await admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")
        await admin.close()
