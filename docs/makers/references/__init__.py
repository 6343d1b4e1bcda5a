"""Makes the reference pages from the code: fields, values, commands, HTTP, metrics, settings, columns, promises.

Each module returns the text of one page. No page holds a fact that is also written by hand elsewhere.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from docs.makers.references import chart, columns, commands, http, metrics, reasons, resource, security, settings

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "memoryindex.md": resource.page,
    "chart-values.md": chart.page,
    "commands.md": commands.page,
    "http.md": http.page,
    "metrics.md": metrics.page,
    "settings.md": settings.page,
    "reasons.md": reasons.page,
    "columns.md": columns.page,
    "security.md": security.page,
}


def write_pages() -> Iterator[str]:
    """Write every page that is missing or differs from what the code yields, and yield the names of these pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield name
