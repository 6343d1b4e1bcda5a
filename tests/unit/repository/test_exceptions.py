"""Every exception of the packages can pass through a context manager."""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import memory_embedder
import memory_operator
import memory_recall

PACKAGES = (memory_embedder, memory_operator, memory_recall)


def exceptions() -> list[type[BaseException]]:
    """All exception classes that a module of the packages defines."""
    found: dict[str, type[BaseException]] = {}
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == module.name:
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


@contextmanager
def passing() -> Iterator[None]:
    """A context manager, which Python has write the traceback into the exception that passes."""
    yield


@pytest.mark.parametrize("kind", exceptions(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_an_exception_passes_through_a_context_manager(kind: type[BaseException]) -> None:
    """A frozen dataclass would become a FrozenInstanceError here."""
    with pytest.raises(kind) as raised, passing():
        raise kind.__new__(kind)
    assert type(raised.value) is kind
