"""One table says of each condition what is particular to it; whoever shows conditions has them all."""

from memory_operator.api.conditions import STAGES, SUMMARY_CONDITIONS, ConditionType
from memory_recall.memory_index import pipeline


def test_the_table_has_every_condition_but_the_summaries_in_the_order_in_which_they_are_written() -> None:
    assert [*SUMMARY_CONDITIONS, *STAGES] == list(ConditionType)
    assert [kind.value for kind in SUMMARY_CONDITIONS] == ["Ready", "Reconciling", "Stalled"]


def test_the_screen_the_plugin_and_the_demo_show_the_stages_of_the_table_in_its_order() -> None:
    """The library, which they use, cannot import the operator. It shows whatever optional condition it finds."""
    required = [(one.name, kind.value) for kind, one in STAGES.items() if not one.optional]
    assert list(pipeline.STAGES.items()) == required
    assert all(pipeline.optional_stage(kind) == one.name for kind, one in STAGES.items() if one.optional)


def test_only_an_optional_condition_may_leave_nothing_to_do_while_it_does_not_hold() -> None:
    """The object is not ready without the others, so the operator or a person has yet to act."""
    assert not [kind for kind, stage in STAGES.items() if stage.nothing_to_do and not stage.optional]
