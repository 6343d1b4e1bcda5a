"""Digests of everything that an upgrade must not lose: rows, and the vectors of both columns."""

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
    """Pairs of (id, digest of all but the vectors), and triples of (column, id, digest of the vector)."""

    rows: frozenset[tuple[int, str]]
    vectors: frozenset[tuple[str, int, str]]

    def rows_lost_in(self, later: "Contents") -> int:
        """Count the rows that are gone or changed."""
        return len(self.rows - later.rows)

    def vectors_lost_in(self, later: "Contents") -> int:
        """Count the vectors that are gone or changed, or are not in their column any more."""
        return len(self.vectors - later.vectors)


def contents_of(answer: str) -> Contents:
    """Return what `QUERY` answered."""
    found = json.loads(answer)
    return Contents(*(frozenset(tuple(entry) for entry in found[part]) for part in ("rows", "vectors")))
