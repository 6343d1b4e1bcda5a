"""What others made that depends on a column of ours, such as a view, for which Postgres refuses to drop the column.

A view keeps to the column itself, not to its name. After a model swap, which exchanges the names of the two vector
columns, it would therefore show the former model's vectors. Functions whose body is a text are not known to depend on a
column.
"""

import json
from collections.abc import Sequence

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.schema.table import MemoryTable

# What Postgres drops with the column, such as an index, depends on it automatically. Our triggers are dropped first.
_DEPENDENTS = """
SELECT coalesce(json_agg(DISTINCT CASE WHEN w.rulename = '_RETURN'
         THEN pg_describe_object('pg_class'::regclass, w.ev_class, 0)
         ELSE pg_describe_object(d.classid, d.objid, 0) END), '[]')::text
  FROM pg_depend d
  JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attname = ANY ($2::text[])
  LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
  LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
 WHERE d.refclassid = 'pg_class'::regclass AND d.deptype = 'n'
   AND NOT coalesce(starts_with(t.tgname, 'zz_memory_'), false)
   AND d.refobjid IN (SELECT to_regclass($1)::oid UNION SELECT inhrelid FROM pg_inherits
                       WHERE inhparent = to_regclass($1)::oid)
   AND NOT EXISTS (SELECT FROM pg_depend o WHERE o.classid = d.classid AND o.objid = d.objid
                      AND o.refclassid = d.refclassid AND o.refobjid = d.refobjid
                      AND o.refobjsubid = d.refobjsubid AND o.deptype IN ('a', 'i'))
"""


async def require_no_dependents(connection: AnyConnection, table: MemoryTable, columns: Sequence[str]) -> None:
    """Refuse to drop columns of a table while something of others depends on one of them. `columns` are their names.

    Raises:
        SchemaUnsupported: something does; the message names it.
    """
    async with reading_catalog(connection, "looking for what depends on our columns"):
        found: list[str] = json.loads(await connection.fetchval(_DEPENDENTS, table.qualified, list(columns)))
    if found:
        raise SchemaUnsupported(
            f"Of {table.schema}.{table.name}, these use {' or '.join(columns)}, which could not be dropped then: "
            f"{', '.join(sorted(found))}.",
            "Drop them, or make them anew without our columns: name the columns that they need in place of *.",
        )
