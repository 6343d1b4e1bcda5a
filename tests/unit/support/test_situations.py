"""How what the operator says of a situation is judged."""

from collections import Counter

import pytest

from tests.support.cluster.situations.observation import Observation, differing
from tests.support.cluster.situations.run import SITUATIONS
from tests.support.cluster.situations.situation import Expected, Situation, missing, ready
from tests.support.gitops.kstatus import Kstatus
from tests.unit.memory_operator.situations import settled

READY = ready("nothing to do")[0]
OWN = 8  # situations of the operator itself, and of CloudNativePG that is installed later


def test_an_object_as_expected_differs_in_nothing() -> None:
    assert differing(settled(), READY) == ""


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expected("x", Kstatus.CURRENT, ("Ready",), "True", serves=False), "Ready although it does not serve"),
        (Expected("x", Kstatus.CURRENT, ("Suspended",), "True", serves=True), "reason is Ready"),
        (Expected("x", Kstatus.FAILED, ("Ready",), "True", serves=True), "kstatus is Current"),
        (Expected("x", Kstatus.FAILED, ("Ready",), "True", serves=True), "Argo CD is Healthy"),
        (Expected("x", Kstatus.FAILED, ("Ready",), "True", serves=True), "Flux is Current"),
        (Expected("x", Kstatus.CURRENT, ("Ready",), "False"), "Ready is True"),
    ],
)
def test_a_difference_is_named(expected: Expected, said: str) -> None:
    assert said in differing(settled(), expected)


def test_what_others_may_deliver_is_judged_again_after_two_minutes() -> None:
    soon, late = (Observation(Situation("key", ()), one) for one in missing("a Secret", "SecretMissing"))
    assert (soon.due, late.due) == (True, False)
    for observation in (soon, late):
        observation.began -= 130
    assert (soon.due, late.due) == (False, True)


def test_there_are_sixty_situations_under_different_names() -> None:
    names = Counter(expected.name for one in SITUATIONS for expected in one.expected)
    assert len(names) + OWN >= 60
    assert names.most_common(1)[0][1] == 1
    assert Counter(one.key for one in SITUATIONS).most_common(1)[0][1] == 1
