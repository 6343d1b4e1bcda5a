"""An id that a person or a file names is one of the table's key, or is refused by the key's type."""

import pytest

from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.keys import KeyType, MemoryId

UUID = "0190f3e0-7d1c-7000-8000-5c2f1e9b0a11"


@pytest.mark.parametrize(
    ("key", "text", "parsed"),
    [
        ("smallint", "-32768", -32768), ("integer", "007", 7), ("bigint", str(2**63 - 1), 2**63 - 1),
        ("uuid", UUID.upper(), UUID), ("uuid", UUID.replace("-", ""), UUID),
        ("text", "", ""), ("text", "17", "17"), ("character varying", "a b", "a b"),
    ],
)  # fmt: skip
def test_a_text_names_an_id_as_the_database_shows_it(key: str, text: str, parsed: MemoryId) -> None:
    assert KeyType(key).parse(text) == parsed
    assert KeyType(key).checked(parsed) == parsed


@pytest.mark.parametrize(
    ("key", "text"),
    [("smallint", "32768"), ("integer", "1.0"), ("bigint", str(2**63)), ("bigint", ""), ("uuid", "17"), ("text", "\0")],
)
def test_what_no_value_of_the_key_is_written_like_is_refused_with_the_type(key: str, text: str) -> None:
    with pytest.raises(InvalidInput, match="is no id of a memory") as refused:
        KeyType(key).parse(text)
    assert f"of the type {key}" in str(refused.value.remedy)


@pytest.mark.parametrize(("key", "given"), [("bigint", "17"), ("uuid", 17), ("text", 17), ("smallint", 2**15)])
def test_a_file_gives_integers_for_integer_keys_and_texts_for_all_others(key: str, given: MemoryId) -> None:
    with pytest.raises(InvalidInput, match="is no id of a memory") as refused:
        KeyType(key).checked(given)
    assert str(given) not in refused.value.message
