"""The database fixtures give what production gives: an ordinary owner and an extension made by someone else."""

from tests.integration.conftest import Database


async def test_the_database_owner_is_not_superuser_and_has_the_extension(database: Database) -> None:
    async with database.connection() as connection:
        assert not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        assert await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")


async def test_a_bare_database_has_no_extension(bare_database: Database) -> None:
    async with bare_database.connection() as connection:
        assert not await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'vector'")
