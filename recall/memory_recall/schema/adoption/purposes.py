"""By which names people call the columns that we use.

Names are compared without regard to case and to what separates their words, so that `user_id`, `userId` and `User Id`
are one name. The names of a column are in groups: those of an earlier group are likelier, those of one group equally
likely.
"""

import re
from collections.abc import Iterator, Mapping

_SEPARATORS = re.compile(r"[^0-9a-z]")

PURPOSES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "id": (("id",), ("uuid", "uid", "key", "memory_id", "note_id", "document_id", "node_id", "slug")),
    "content": (
        ("content",),
        (
            "body", "text", "document", "page_content", "memory", "memory_text", "memory_content", "data", "note",
            "fact", "chunk", "chunk_text", "message", "value", "statement",
        ),
    ),
    "is_sensitive": (
        ("is_sensitive",),
        (
            "sensitive", "secret", "is_secret", "private", "is_private", "confidential", "is_confidential",
            "restricted", "is_restricted",
        ),
    ),
    "deleted_at": (
        ("deleted_at",),
        ("is_deleted", "deleted", "deleted_on", "removed_at", "removed", "is_removed", "trashed_at", "trashed"),
        ("archived_at", "archived", "is_archived"),
    ),
    "search_vector": (("search_vector",), ("fts", "tsv", "words", "search", "text_search_tsv", "content_tsv")),
    "user_id": (
        ("user_id",),
        ("user", "owner", "owner_id", "user_name", "account_id", "profile_id"),
        ("agent_id", "tenant_id"),
    ),
    "category": (("category",), ("kind", "topic", "memory_type")),
    "tags": (("tags",), ("labels",)),
    "expanded_keywords": (("expanded_keywords",),),
    "importance": (("importance",), ("score", "priority", "weight", "salience")),
    "created_at": (("created_at",), ("created", "created_on", "inserted_at", "date_created")),
    "updated_at": (("updated_at",), ("updated", "updated_on", "modified_at", "last_modified", "date_updated")),
}  # fmt: skip
"""The groups of names by our name of a column."""


def plain(name: str) -> str:
    """Return a name without what does not tell it from others: `userid` for `User Id`."""
    return _SEPARATORS.sub("", name.lower())


def known_names() -> list[str]:
    """Return every name that is looked for, as `plain` writes it, without repetitions."""
    return sorted({plain(name) for groups in PURPOSES.values() for group in groups for name in group})


def plain_groups(purpose: str) -> Iterator[frozenset[str]]:
    """Yield the groups of names of a column by our name, as `plain` writes them."""
    for group in PURPOSES[purpose]:
        yield frozenset(map(plain, group))
