"""Checks the fields of frozen dataclasses against their annotations, by pydantic's rules; raises `InvalidInput`."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from memory_recall.errors import InvalidInput

T = TypeVar("T")


def check_fields(value: Any) -> None:  # noqa: ANN401  (any frozen dataclass)
    """Check each field of a frozen dataclass strictly against its annotation, and store the checked value.

    Raises:
        InvalidInput: fields are not what their annotations say; the message names them all and never quotes a value.
    """
    kind: Any = type(value)  # typeshed does not take a class for hashable
    model = _strict_model(kind)
    given = {name: getattr(value, name) for name in model.model_fields}
    try:
        checked = model.model_validate(given).__dict__
    except ValidationError as error:
        raise _refusal(error) from None
    for name, before in given.items():
        if checked[name] is not before:
            object.__setattr__(value, name, checked[name])


def parse_fields(kind: type[T], texts: Mapping[str, object]) -> T:
    """Make a frozen dataclass from texts, as a command line gives them: "0.5" becomes a number for a field of numbers.

    Raises:
        InvalidInput: texts do not fit their fields; the message names the fields and never quotes a value.
    """
    try:
        return TypeAdapter(kind).validate_python(texts)
    except ValidationError as error:
        raise _refusal(error) from None


@cache
def _strict_model(kind: type) -> type[BaseModel]:
    annotated: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(kind, include_extras=True).items()}
    return create_model(kind.__name__, __config__=ConfigDict(strict=True), **annotated)


def _refusal(error: ValidationError) -> InvalidInput:
    """Return the refusal that names each field that cannot be used, with its first problem."""
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        problems.setdefault(str(problem["loc"][0]), problem["msg"])
    faults = [f"`{name}` cannot be used: {text[0].lower()}{text[1:]}." for name, text in problems.items()]
    return InvalidInput(" ".join(faults), f"Correct {' and '.join(f'`{name}`' for name in problems)}.")
