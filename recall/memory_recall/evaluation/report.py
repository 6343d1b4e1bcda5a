"""Makes one HTML page of an evaluation, with plots, for people.

The page is complete in itself: its plots are SVG, it has no script, and it loads nothing. It holds the names of strata
and numbers, but no text of a question or of a memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from memory_recall.evaluation.evaluate import Outcome
from memory_recall.evaluation.measures import MEASURES
from memory_recall.evaluation.significance import compare, interval_of_mean
from memory_recall.search.query import Mode

_LABEL, _PLOT, _ROW, _TOP = 300, 430, 18, 24  # pixels: width of the labels and of the plot, height of a row, headroom
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2.5rem; }
svg { display: block; max-width: 100%; height: auto; background: #fff; }
svg text { font: 12px system-ui, sans-serif; fill: #333; }
.grid { stroke: #ddd; } .zero { stroke: #333; }
.lexical { stroke: #b45309; fill: #b45309; } .dense { stroke: #1d6fb8; fill: #1d6fb8; }
.hybrid { stroke: #15803d; fill: #15803d; }
line.lexical, line.dense, line.hybrid { stroke-width: 2; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, td:nth-child(2) { text-align: left; }
"""
_FEWEST = 10  # questions of which an interval says anything: the bootstrap of five equal scores has the width 0
_SHARE = (0.0, 1.0)
_SPANS = (0.1, 0.2, 0.5, 1.0)  # of the axis of differences to each side


@dataclass(frozen=True, slots=True)
class _Point:
    """One row of a plot: a value with its 95 % interval, or without one where there are too few questions."""

    label: str
    mode: Mode
    value: float
    interval: tuple[float, float] | None
    note: str = ""


def report_page(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> str:
    """Return an HTML page with tables and plots of the measures, by stratum and mode.

    `outcomes` must have an outcome of every question in every mode.
    """
    questions = len({one.question.query_id for one in outcomes})
    body = [
        "<h1>Recall on labelled questions</h1>",
        f"<p>{questions} questions. Lines are 95 % intervals of the mean over questions, by the bootstrap.</p>",
    ]
    strata = _by_stratum(outcomes, modes)
    for measure in MEASURES:
        points = [_mean(name, mode, scores[mode][measure]) for name, scores in strata.items() for mode in modes]
        body += [f"<h2>{measure}</h2>", _plot(points, f"{measure} by stratum and mode", _SHARE), _table(points)]
        differences = _differences(strata, modes, measure)
        if differences:
            body += [
                f"<h3>{measure}: what {differences[0].mode} gains</h3>",
                _plot(differences, f"Paired differences of {measure}", _axis_of(differences)),
                _table(differences),
            ]
    body.append(
        f"<p>p is that of a paired randomisation test. Below {_FEWEST} questions a stratum there is no interval, and "
        "below about 50 it is wide: a difference whose interval holds 0 may be chance. So may one of many: where "
        "nothing differs, one in twenty of these p is below .05 all the same, and none of them is corrected.</p>"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Recall on labelled questions</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


_Scores = dict[Mode, dict[str, list[float]]]  # by mode and measure, one score a question, in the order of questions


def _by_stratum(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> dict[str, _Scores]:
    names = sorted({one.question.stratum for one in outcomes})
    chosen = {"all questions": list(outcomes)}
    if len(names) > 1:
        chosen |= {name: [one for one in outcomes if one.question.stratum == name] for name in names}
    return {f"{name} ({len(found) // len(modes)})": _scores(found, modes) for name, found in chosen.items()}


def _scores(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> _Scores:
    ordered = sorted(outcomes, key=lambda one: one.question.query_id)
    named = {mode: [one.scores.named() for one in ordered if one.mode == mode] for mode in modes}
    return {mode: {measure: [one[measure] for one in found] for measure in MEASURES} for mode, found in named.items()}


def _mean(stratum: str, mode: Mode, scores: Sequence[float]) -> _Point:
    interval = interval_of_mean(scores) if len(scores) >= _FEWEST else None
    return _Point(f"{stratum}: {mode}", mode, sum(scores) / len(scores), interval)


def _differences(strata: dict[str, _Scores], modes: Sequence[Mode], measure: str) -> list[_Point]:
    """Compare hybrid, or else the last mode, with each other mode in every stratum."""
    chosen: Mode = "hybrid" if "hybrid" in modes else modes[-1]

    def point(stratum: str, other: Mode, before: list[float], after: list[float]) -> _Point:
        found = compare(before, after)
        interval = (found.low, found.high) if len(after) >= _FEWEST else None
        label = f"{stratum}: {chosen} - {other}"
        return _Point(label, chosen, found.difference, interval, _probability(found.p_value))

    return [
        point(name, other, scores[other][measure], scores[chosen][measure])
        for name, scores in strata.items()
        for other in modes
        if other != chosen
    ]


def _spelt(interval: tuple[float, float] | None) -> str:
    return "too few questions" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _probability(value: float) -> str:
    return "&lt; 0.001" if value < 0.001 else f"{value:.3f}"


def _axis_of(points: Sequence[_Point]) -> tuple[float, float]:
    """Return the narrowest axis around 0 on which all values and intervals fit."""
    widest = max(abs(end) for point in points for end in (point.value, *(point.interval or ())))
    span = next(one for one in _SPANS if widest <= one)
    return -span, span


def _plot(points: Sequence[_Point], title: str, axis: tuple[float, float]) -> str:
    """Draw one row a point: a dot for the value and a line for its interval."""
    least, most = axis
    ticks = [least + (most - least) * quarter / 4 for quarter in range(5)]
    height = _TOP + _ROW * len(points) + 8

    def x(value: float) -> float:
        return round(_LABEL + _PLOT * (value - least) / (most - least), 1)

    parts = []
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick)}" x2="{x(tick)}" y1="{_TOP - 6}" y2="{height}"/>')
        parts.append(f'<text x="{x(tick)}" y="12" text-anchor="middle">{tick:g}</text>')
    for number, point in enumerate(points):
        y = _TOP + _ROW * number + _ROW // 2
        parts.append(f'<text x="0" y="{y + 4}">{escape(point.label)}</text>')
        if point.interval is not None:
            low, high = map(x, point.interval)
            parts.append(f'<line class="{point.mode}" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="{point.mode}" cx="{x(point.value)}" cy="{y}" r="4"/>')
    size = f'viewBox="0 0 {_LABEL + _PLOT + 20} {height}" width="{_LABEL + _PLOT + 20}"'
    return f'<svg {size} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _table(points: Sequence[_Point]) -> str:
    noted = any(point.note for point in points)
    head = "<tr><th></th><th>value</th><th>95 % interval</th>" + ("<th>p</th>" if noted else "") + "</tr>"
    rows = [
        f"<tr><td>{escape(point.label)}</td><td>{point.value:.3f}</td>"
        f"<td>{_spelt(point.interval)}</td>{f'<td>{point.note}</td>' if noted else ''}</tr>"
        for point in points
    ]
    return f"<details><summary>Numbers</summary><table>{head}{''.join(rows)}</table></details>"
