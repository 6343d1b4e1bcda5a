"""The search column of ours, for a table that has none: how its words are made, and what keeps it up to date.

Words are made of the text by the chosen text search configuration. What Postgres alone would tell apart is made alike
in texts and in queries: composed and decomposed letters, forms of a width, accents of Latin letters, and capital and
small letters of every script, which a database of the locale C folds in ASCII alone. Marks of punctuation outside ASCII
separate words, which they do not in that locale. Scripts that are written without spaces (Chinese, Japanese, Thai, Lao,
Khmer) have no words that Postgres could find; every two characters that stand side by side are a word there.

The first 80,000 characters of a text are read. Postgres refuses a tsvector of a mebibyte, which no text of this length
can reach, and a refusal would make the user's own write fail.
"""
# ruff: noqa: S608  (the function is put together from our own expressions and a collation that the catalog names)

import re
from typing import Any

from memory_recall.postgres.catalog_sql import SAFE_PATH
from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.ddl import literal
from memory_recall.schema.definitions import Function, Trigger, trigger_function
from memory_recall.schema.names import index_name
from memory_recall.schema.table import ORDINARY_COLLATION, WORDS, MemoryTable

KEEP_WORDS = "memory_index_keep_words"
_LONGEST_TEXT = 80_000  # characters; a pair of characters of four bytes takes twelve bytes of a tsvector
_UNSPACED = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1780-\u17ff\U00020000-\U0002fa1f]+"
_PUNCTUATION = (
    r"[\u00a1-\u00bf\u2010-\u206f\u2e00-\u2e7f\u3000-\u303f\ufe30-\ufe4f"
    r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
)
_FOLDED_BY = re.compile(r"COLLATE (\S+)\) AS folded")


def words_function(table: MemoryTable, found: dict[str, Any]) -> Function:
    """Return the function that makes the words of a text.

    It folds case by the collation of the function in the catalog (`found`), if there is one, so that a later version of
    Postgres with other collations does not change the words that are stored. The collation of the text's column plays
    no part: Postgres refuses regular expressions under a nondeterministic one.
    """
    configuration = f"{literal(table.text_search_configuration)}::regconfig"
    text = f"left(content COLLATE {ORDINARY_COLLATION}, {_LONGEST_TEXT})"
    plain = f"to_tsvector({configuration}, {text})"
    if table.case_folding is None:
        body = f"SELECT coalesce({plain}, '')"
    else:
        recorded = _FOLDED_BY.search(found.get(WORDS + table.suffix, {"body": ""})["body"])
        collation = recorded.group(1) if recorded else table.case_folding
        body = f"""
        SELECT CASE
            WHEN content IS NULL THEN ''
            WHEN octet_length(content) = char_length(content) THEN {plain}
            ELSE (
                SELECT to_tsvector({configuration}, regexp_replace(folded, {literal(_UNSPACED)}, ' ', 'g'))
                       || to_tsvector('simple', {_pairs("folded")})
                  FROM (SELECT {_folded(text, collation)} AS folded) read)
        END
        """
    return Function(WORDS, "content text", "tsvector", "sql", "IMMUTABLE", body, search_path=SAFE_PATH)


def _folded(text: str, collation: str) -> str:
    """Return SQL for a text in small letters, without accents of Latin letters and punctuation outside ASCII."""
    accented, letter = literal(r"([A-Za-z])[\u0300-\u036f]+"), literal(r"\1")
    bare = f"regexp_replace(normalize({text}, NFKD), {accented}, {letter}, 'g')"
    spaced = f"regexp_replace(normalize({bare}, NFKC), {literal(_PUNCTUATION)}, ' ', 'g')"
    return f"lower({spaced} COLLATE {collation})" if collation else f"lower({spaced})"


def _pairs(text: str) -> str:
    """Return SQL for the pairs of characters of a text's parts without spaces, with a space after each pair.

    The characters of a part are taken apart once: to find the place of each pair from the beginning of a long part
    anew, as `substr` does, would take half a minute of whoever writes the text.
    """
    return f"""(
                    SELECT coalesce(string_agg(pair, ' '), '')
                      FROM regexp_matches({text}, {literal(_UNSPACED)}, 'g') AS run,
                           LATERAL (
                               SELECT CASE WHEN count(*) OVER () = 1 THEN letter
                                           ELSE letter || lead(letter) OVER (ORDER BY place) END AS pair
                                 FROM unnest(string_to_array(run[1], NULL)) WITH ORDINALITY AS letters(letter, place)
                           ) AS pairs)"""


def keep_words_function(table: MemoryTable) -> Function:
    """Return the trigger function that makes the words of a row's present text."""
    made = f"{table.own(WORDS)}({table.row('NEW').content})"
    return trigger_function(KEEP_WORDS, f"BEGIN NEW.{OWN_SEARCH_COLUMN} := {made}; RETURN NEW; END")


def words_triggers(table: MemoryTable) -> list[Trigger]:
    """Return the triggers that keep the words; an update that leaves the text and the words alone fires none."""
    if not table.names.has_own_search_column:
        return []
    new = table.row("new")
    differs = " OR ".join(new.differs("content", "old"))
    condition = f"((new.{OWN_SEARCH_COLUMN} IS NULL) OR {differs})"
    return [
        Trigger("zz_memory_index_words_insert", "BEFORE INSERT", "FOR EACH ROW", KEEP_WORDS),
        Trigger("zz_memory_index_words_update", "BEFORE UPDATE", f"FOR EACH ROW WHEN ({condition})", KEEP_WORDS),
    ]


def words_indexes(table: MemoryTable) -> dict[str, tuple[str, str]]:
    """Return the partial indexes of the search column by name: what each is over, and its condition.

    One is for searches, and the other one finds the rows whose words are not made yet.
    """
    if not table.names.has_own_search_column:
        return {}
    return {
        index_name(table.name, OWN_SEARCH_COLUMN): (
            f"USING gin ({OWN_SEARCH_COLUMN})",
            f"({OWN_SEARCH_COLUMN} IS NOT NULL)",
        ),
        index_name(table.name, "without_words"): (f"({table.row().id})", f"({OWN_SEARCH_COLUMN} IS NULL)"),
    }
