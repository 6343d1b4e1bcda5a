"""Each rule of the resource definition has a malformed object that the tests on a cluster have refused because of it.

Many fields have a rule of the same message, such as that of a Secret's name. So a case counts for a rule only where it
edits the field that the rule is about, and for one rule alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.crd_cases import FORBIDDEN_CHANGES, MALFORMED, Case

Schema = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A CEL rule: the dotted path of what it is about, as in an edit, and its message, or the fixed parts of one."""

    path: str
    says: tuple[str, ...]
    computed: bool

    def is_tried_by(self, case: Case) -> bool:
        """Whether the case expects this message, and edits the rule's field or one below it."""
        edited = [path for field, value in case.edits.items() for path in edited_paths(field, value)]
        if not any(not self.path or f"{path}.".startswith(f"{self.path}.") for path in edited):
            return False
        return any(part in case.says if self.computed else case.says in part for part in self.says)


def rules(schema: Schema, path: str = "") -> Iterator[Rule]:
    """Every rule of a schema and of the fields below it; an item of a list has the path of the list."""
    for rule in schema.get("x-kubernetes-validations", ()):
        expression = rule.get("messageExpression")
        fixed = [part.strip() for part in re.findall(r"'([^']*)'", expression or "")]
        says = [part for part in fixed if part.count(" ") > 1] if expression else [rule["message"]]
        yield Rule(path, tuple(says), computed=expression is not None)
    for name, inner in schema.get("properties", {}).items():
        yield from rules(inner, f"{path}.{name}".lstrip("."))
    yield from rules(schema["items"], path) if "items" in schema else ()


def edited_paths(path: str, value: Any) -> Iterator[str]:
    """The dotted paths of all that an edit sets or removes."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from edited_paths(f"{path}.{name}", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from edited_paths(path, inner)
    else:
        yield path


def untried(found: Sequence[Rule], cases: Sequence[Case]) -> list[Rule]:
    """The rules for which no case is left where as many rules as possible are given one case each."""
    rule_of: dict[str, int] = {}

    def give(number: int, asked: set[str]) -> bool:
        """Give a rule a case; one that another rule has is taken where that one finds another."""
        for case in cases:
            if case.name in asked or not found[number].is_tried_by(case):
                continue
            asked.add(case.name)
            if case.name not in rule_of or give(rule_of[case.name], asked):
                rule_of[case.name] = number
                return True
        return False

    return [rule for number, rule in enumerate(found) if not give(number, set())]


def test_each_rule_of_the_definition_is_tried_by_a_case_of_its_own(resource_definition: Schema) -> None:
    (version,) = resource_definition["spec"]["versions"]
    found = list(rules(version["schema"]["openAPIV3Schema"]))
    cases = [*MALFORMED, *FORBIDDEN_CHANGES]
    assert str(version).count("'rule': ") == len(found), "no rule is overlooked"
    assert len({case.name for case in cases}) == len(cases)
    assert untried(found, cases) == []
