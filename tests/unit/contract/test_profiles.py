"""The library and the embedder never import each other; these tests keep what they share the same."""

from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

from memory_embedder.errors import EmbedderError
from memory_embedder.models import profiles as served
from memory_recall.embedding import profiles as known


def test_both_sides_know_the_same_models() -> None:
    """A model that the embedder can serve is known to the library under the same name, and the other way round."""
    assert set(served.PROFILES) == set(known.PROFILES)


def test_both_sides_agree_on_every_model() -> None:
    """Every field of the library's profile, such as dimensions, pooling and prefixes, is the same on both sides."""
    for name, profile in known.PROFILES.items():
        for field in fields(known.ModelProfile):
            assert getattr(profile, field.name) == getattr(served.PROFILES[name], field.name), (name, field.name)


def test_both_sides_agree_on_the_numbers_of_dimensions_that_a_model_yields() -> None:
    """What the library migrates for, the embedder serves, and the other way round."""
    for name, profile in known.PROFILES.items():
        for dimensions in (1, 16, 32, 63, 64, 256, 383, 384, 385, 512, 767, 768, 769, 1023, 1024, 1025):
            try:
                served.PROFILES[name].cut_to(dimensions)
                is_served = True
            except EmbedderError:
                is_served = False
            assert profile.yields(dimensions) is is_served, (name, dimensions)


FILE = "sha256:" + "a" * 64
SERVED_IN_A_WAY = (
    served.PROFILES["multilingual-e5-small"],
    served.ModelProfile("custom", 384, 512, served.Pooling.MEAN),
    served.ModelProfile("custom", 384, 512, served.Pooling.CLS),
    served.ModelProfile("custom", 384, 512, served.Pooling.MEAN, document_prefix="passage: "),
    served.ModelProfile("custom", 384, 512, served.Pooling.MEAN, query_prefix="Anfrage für: "),
    replace(served.PROFILES["multilingual-e5-small"], document_prefix=""),
)


def test_both_sides_give_the_same_digest_to_a_file_that_is_served_in_the_same_way_and_to_no_other() -> None:
    """The published way gives it that of the file, so that a catalogue's model is known by its file alone."""
    digests = [served.served_digest(one, FILE) for one in SERVED_IN_A_WAY]
    assert digests == [
        known.served_digest(FILE, one.name, one.pooling.value, one.query_prefix, one.document_prefix)
        for one in SERVED_IN_A_WAY
    ]
    assert digests[0] == FILE
    assert len(set(digests)) == len(SERVED_IN_A_WAY)


PAGE = Path(__file__).parents[3] / "docs" / "embedder.md"
HEAD = "| profile | languages | dimensions | window | pooling | query prefix | document prefix | licence |"


def documented() -> list[list[str]]:
    """The cells of the documented table, in which a long prefix may be cut off by an ellipsis or said once for two."""
    rows = [line for line in PAGE.read_text().partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:] if line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    for above, row in pairwise(cells):
        row[:] = [whole if cell == "as above" else cell for whole, cell in zip(above, row, strict=True)]
    return cells


def shown(cell: str, prefix: str) -> bool:
    text = cell.strip("`")
    return prefix.startswith(text.removesuffix("...").rstrip()) if text.endswith("...") else prefix == text


def test_the_documented_table_of_models_is_the_catalogue() -> None:
    table = {row[0].removesuffix(" (default)"): row[1:] for row in documented()}
    assert set(table) == set(served.PROFILES)
    for name, (languages, dimensions, window, pooling, query, document, licence) in table.items():
        profile = served.PROFILES[name]
        facts = (profile.languages, profile.dimensions, profile.max_tokens, profile.pooling.value, profile.licence)
        assert (languages, int(dimensions), int(window), pooling, licence) == facts, name
        assert shown(query, profile.query_prefix), name
        assert shown(document, profile.document_prefix), name


def test_a_model_of_some_languages_says_their_scripts_and_a_multilingual_one_none() -> None:
    """So that what reads the catalogue can tell which texts are beyond a model."""
    for name, profile in known.PROFILES.items():
        assert profile.languages != "unknown", name
        assert (profile.scripts is None) == ("languages" in profile.languages), name
