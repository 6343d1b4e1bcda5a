"""The page of conditions and reasons: codes and remedies from the operator, with what each means."""

from collections.abc import Iterable, Iterator

from docs.makers.markdown import code, document, plain, table
from docs.makers.references.meanings import CONDITIONS, REASONS
from memory_operator.api.conditions import GRACE_PERIOD, STAGES, ConditionType
from memory_operator.api.reasons import DELIVERED_BY_OTHERS, Reason

INTRODUCTION = """\
Every condition of a MemoryIndex and every reason that one can have. Both sets are closed: a test compares them with the
operator's. All conditions are positive but `Reconciling` and `Stalled`. The message of a condition names the object,
and where a worker or Postgres knew better, a more exact remedy than the one below.
[The order of the work](../operator.md#the-order-of-the-work) says what the operator does for each condition."""
STALLS = """\
`Stalled` is true with the same reason. Those marked *later* may still be delivered by others, such as External Secrets
or the scheduler: `Reconciling` is true until they have been missing for {seconds} seconds."""


def page() -> str:
    """Return the page of conditions and reasons."""
    progress = [reason for reason in Reason if not reason.remedy and not reason.stalls]
    passing = [reason for reason in Reason if reason.remedy and not reason.stalls]
    stalling = [reason for reason in Reason if reason.stalls]
    return document(
        "# Conditions and reasons",
        INTRODUCTION,
        "## Conditions",
        table(
            ("condition", "true when", "stage of `memory status --kube`"),
            [
                (code(kind.value), CONDITIONS[kind], STAGES[kind].name if kind in STAGES else "")
                for kind in ConditionType
            ],
        ),
        "## Progress and success",
        "Nothing to do.",
        table(("reason", "what it means"), [(code(reason.code), plain(REASONS[reason])) for reason in progress]),
        "## Retried, or passing by itself",
        table(("reason", "what it means", "what helps"), _rows(passing)),
        "## A person must act",
        STALLS.format(seconds=round(GRACE_PERIOD.total_seconds())),
        table(("reason", "what it means", "remedy"), _rows(stalling)),
    )


def _rows(reasons: Iterable[Reason]) -> Iterator[tuple[str, str, str]]:
    for reason in reasons:
        later = " *later*" if reason in DELIVERED_BY_OTHERS else ""
        yield f"{code(reason.code)}{later}", plain(REASONS[reason]), plain(reason.remedy)
