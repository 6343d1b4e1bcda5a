"""docs/operator.md lists every reason with the remedy that the conditions show."""

from pathlib import Path

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.settings import Settings
from tests.unit.chart.conftest import setting_paths

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "operator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.code)
def test_each_reason_is_documented_with_its_remedy(reason: Reason) -> None:
    assert f"`{reason.code}`" in TEXT
    if reason.remedy:
        assert f"| `{reason.code}` | {reason.remedy} |" in TEXT


@pytest.mark.parametrize("path", list(setting_paths(Settings)))
def test_each_setting_is_documented(path: str) -> None:
    assert f"`MEMORY_OPERATOR_{path.upper()}`" in TEXT
