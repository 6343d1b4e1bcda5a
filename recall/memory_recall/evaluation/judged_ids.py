"""Compares the ids that labelled questions name with the key of the table that is measured."""

from collections.abc import Iterable

from memory_recall.errors import InvalidInput
from memory_recall.evaluation.evaluate import Question
from memory_recall.evaluation.judgements import judged_id
from memory_recall.postgres.connection import opened
from memory_recall.schema.columns.keys import KeyType, MemoryId
from memory_recall.schema.table import describe
from memory_recall.settings import Settings


async def require_judged_ids(settings: Settings, questions: Iterable[Question]) -> None:
    """Refuse questions about memories of another table, which would count as not found.

    Raises:
        InvalidInput: a judgement names a memory by an id that no memory of the table can have.
    """
    async with opened(settings.dsn(), "memory-cli") as connection:
        key = (await describe(connection, settings.table)).key
    for question in questions:
        if not all(_may_be_id(key, one) for one in question.relevant | question.grades.keys()):
            raise InvalidInput(
                f"The question {question.query_id!r} names a memory by an id that no row of {settings.table} can have.",
                f"An id of this table is of the type {key.name}; write it as the database does.",
            )


def _may_be_id(key: KeyType, identity: MemoryId) -> bool:
    try:
        return judged_id(key.parse(str(identity))) == identity
    except InvalidInput:
        return False
