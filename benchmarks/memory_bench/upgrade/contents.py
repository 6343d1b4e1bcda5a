"""Computes digests of everything that an upgrade must not lose: the rows, and the vectors of both embedding columns."""

import json
from dataclasses import dataclass

# As JSON a column that does not exist is NULL, so this serves every revision. One value, so psql can print it.
QUERY = """
SELECT json_build_object(
    'rows', (SELECT coalesce(json_agg(json_build_array(
                        id, md5((to_jsonb(m) - 'embedding' - 'embedding_standby')::text))), '[]') FROM memories m),
    'vectors', (SELECT coalesce(json_agg(json_build_array(name, id, md5(to_jsonb(m) ->> name))), '[]')
                  FROM memories m, unnest(ARRAY['embedding', 'embedding_standby']) AS name
                 WHERE to_jsonb(m) ->> name IS NOT NULL))
"""


@dataclass(frozen=True)
class Contents:
    """The digests of a table's contents at one moment.

    `rows` holds pairs of a row's id and the digest of all the row's columns except the vectors. `vectors` holds triples
    of the column's name, the row's id and the digest of the vector.
    """

    rows: frozenset[tuple[int, str]]
    vectors: frozenset[tuple[str, int, str]]

    def rows_lost_in(self, later: "Contents") -> int:
        """Count the rows of these contents that are changed or missing in the contents `later`."""
        return len(self.rows - later.rows)

    def vectors_lost_in(self, later: "Contents") -> int:
        """Count the vectors of these contents that are changed or missing in the contents `later`.

        A vector counts as missing if it is in another column.
        """
        return len(self.vectors - later.vectors)


def parse_contents(answer: str) -> Contents:
    """Parse the JSON that the SQL query `QUERY` returns."""
    found = json.loads(answer)
    return Contents(*(frozenset(tuple(entry) for entry in found[part]) for part in ("rows", "vectors")))
