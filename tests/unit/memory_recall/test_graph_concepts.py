"""Concepts of a memory, found without a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_recall.graph.concepts import concepts_of, normal_form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Servers,", "server"),
        ("  Kestrel   Lane's", "kestrel lane"),
        ("Marit\u2019s", "marit"),
        ("batteries", "battery"),
        ("switches", "switch"),
        ("classes", "class"),
        ("status", "status"),
        ("bus", "bus"),
        ("k8s", "k8s"),
        ("nas-01", "nas-01"),
        ("(`pg_ctl`)", "pg_ctl"),
    ],
)
def test_spellings_of_one_concept_have_one_normal_form(text: str, expected: str) -> None:
    """Case, punctuation at the ends, the possessive and the regular plural make no difference."""
    assert normal_form(text) == expected


def test_concepts_come_from_tags_keywords_and_names_in_the_content() -> None:
    """A tag may have several words, and a run of capitalised words counts whole and word by word."""
    found = concepts_of(
        "Then Marit Oxholm restarted nas-01 with `systemctl`, see /etc/fstab.",
        "people, home lab",
        "husband woodwork",
        source="names",
    )
    assert found == {
        "people", "home lab", "husband", "woodwork", "marit oxholm", "marit", "oxholm", "nas-01", "systemctl",
        "/etc/fstab",
    }  # fmt: skip


def test_technologies_are_concepts_without_a_capital() -> None:
    """Nothing but the list tells that a word in lower case is a name."""
    assert concepts_of("we moved from redis to zfs and a boat", source="names") == {"redis", "zfs"}


def test_every_other_word_is_a_concept_only_where_words_are_asked_for() -> None:
    """Stop words and words of fewer than three letters never are."""
    text = "the frogs are on a zip near his chin, ok"
    assert concepts_of(text, source="names") == frozenset()
    assert concepts_of(text, source="words") == {"frog", "zip", "near", "chin"}


@settings(max_examples=50)
@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=20))
def test_any_text_has_concepts_in_normal_form(content: str, tags: str, keywords: str) -> None:
    """No text is refused, no concept is empty or has a space at its end, and names are among the words' concepts."""
    words = concepts_of(content, tags, keywords, source="words")
    assert all(one == one.strip() and len(one) > 1 for one in words)
    assert concepts_of(content, tags, keywords, source="names") <= words


@pytest.mark.timeout(60)
def test_a_text_of_capitalised_stop_words_alone_is_read_once() -> None:
    """Reading it once for each of its words would take hours, while a transaction of the worker is open."""
    assert concepts_of("A " * 1_000_000) == frozenset()
