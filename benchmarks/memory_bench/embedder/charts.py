"""Draws the chart of one model: document throughput by text length, and query latency without and with documents."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from memory_bench.embedder.plan import ACCEPTANCE_CONCURRENCY
from memory_bench.embedder.records import (
    LLAMA_CLASS,
    LLAMA_CLASS_SMALL,
    LLAMA_SERVER,
    OURS,
    RAW,
    RAW_ONE_THREAD,
    SENTENCE_TRANSFORMERS,
    Measurements,
)
from memory_bench.embedder.subject import median
from memory_bench.embedder.summary import document_rates, queries_under_bulk
from memory_bench.report import chart

_COLOURS = {
    OURS: "#0072b2",
    LLAMA_SERVER: "#d55e00",
    RAW: "#999999",
    RAW_ONE_THREAD: "#d0d0d0",
    LLAMA_CLASS: "#009e73",
    LLAMA_CLASS_SMALL: "#a6d9c8",
    SENTENCE_TRANSFORMERS: "#cc79a7",
}


def draw(found: Measurements, machine: str, path: Path) -> None:
    """Write the chart of one model as PNG; `machine` is named in the chart's title."""
    compared = any(one.subject == LLAMA_SERVER for one in found.documents)
    panels = [_documents, *([_throughput_ratio] if compared else []), _idle] + ([_under_bulk] if found.mixed else [])
    with chart(path, columns=len(panels), size=(5.2 * len(panels), 5.0)) as axes:
        for panel, ax in zip(panels, axes, strict=True):
            panel(ax, found)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].figure.suptitle(f"{found.model} on {machine}")


def _documents(ax: Axes, found: Measurements) -> None:
    lengths = sorted({one.tokens for one in found.documents if one.concurrency == ACCEPTANCE_CONCURRENCY})
    series = {
        subject: [document_rates(found, tokens, ACCEPTANCE_CONCURRENCY).get(subject, []) for tokens in lengths]
        for subject in _COLOURS
    }
    _bars(ax, [str(tokens) for tokens in lengths], series)
    limit = median(found.gemm_flops)
    for index, tokens in enumerate(lengths):
        rate = limit / found.text_flops[tokens]
        ax.hlines(rate, index - 0.45, index + 0.45, color="black", linestyles="dashed", linewidth=1)
        ax.annotate(f"{'F16' if found.gpu else 'F32'} GEMM limit", (index, rate), ha="center", va="bottom", fontsize=7)
    ax.set(yscale="log", xlabel="tokens a text", ylabel="texts a second (log)")
    ax.set_title(f"Documents, {ACCEPTANCE_CONCURRENCY} requests at once")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.margins(y=0.12)
    _legend(ax)


def _throughput_ratio(ax: Axes, found: Measurements) -> None:
    """Plot our throughput divided by llama-server's, by text length and concurrency; above 1 our server is faster."""
    lengths = sorted({one.tokens for one in found.documents})
    concurrencies = sorted({one.concurrency for one in found.documents})
    for concurrency, marker in zip(concurrencies, "osD^", strict=False):
        points = []
        for tokens in lengths:
            rates = document_rates(found, tokens, concurrency)
            points.append(median(rates[OURS]) / median(rates[LLAMA_SERVER]) if OURS in rates else float("nan"))
        ax.plot(lengths, points, marker=marker, label=f"{concurrency} at once")
    ax.axhline(1, color="black", linewidth=0.8)
    ax.set(xscale="log", ylim=(0, None), xlabel="tokens a text", ylabel=f"{OURS} / {LLAMA_SERVER}")
    ax.set_xticks(lengths, [str(tokens) for tokens in lengths])
    ax.minorticks_off()
    ax.set_title("Documents: ours over llama-server")
    _legend(ax)


def _idle(ax: Axes, found: Measurements) -> None:
    lengths = sorted({one.tokens for one in found.queries})
    series = {
        subject: [
            [1000 * v for one in found.queries if (one.subject, one.tokens) == (subject, tokens) for v in one.seconds]
            for tokens in lengths
        ]
        for subject in (OURS, LLAMA_SERVER, RAW, RAW_ONE_THREAD, SENTENCE_TRANSFORMERS)
    }
    _bars(ax, [str(tokens) for tokens in lengths], series)
    ax.set(xlabel="tokens a query", ylabel="milliseconds, median (whisker: p95)")
    ax.set_title("A query alone")
    _legend(ax)


def _under_bulk(ax: Axes, found: Measurements) -> None:
    for subject in (OURS, LLAMA_SERVER):
        values = np.sort(1000 * np.array(queries_under_bulk(found.mixed, subject)))
        if len(values):
            shares = np.arange(1, len(values) + 1) / len(values)
            ax.step(values, shares, where="post", color=_COLOURS[subject], label=f"{subject} ({len(values)} queries)")
    if found.document_batch_seconds:
        batch = 1000 * found.document_batch_seconds
        ax.axvline(batch, color="black", linestyle="dotted", linewidth=1)
        ax.annotate("one document batch", (batch, 0.98), rotation=90, fontsize=8, ha="right", va="top")
    ax.set(xscale="log", ylim=(0, 1.02), xlabel="milliseconds (log)", ylabel="share of queries answered")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_title("Queries while two clients send documents")
    _legend(ax)


def _bars(ax: Axes, groups: list[str], series: dict[str, list[list[float]]]) -> None:
    present = {name: values for name, values in series.items() if any(values)}
    width = 0.86 / max(1, len(present))
    for number, (name, values) in enumerate(present.items()):
        places = [index - 0.43 + (number + 0.5) * width for index in range(len(groups))]
        heights = [median(one) if one else 0.0 for one in values]
        tops = [
            max(0.0, float(np.percentile(one, 95)) - top) if one else 0.0
            for one, top in zip(values, heights, strict=True)
        ]
        bars = ax.bar(places, heights, width, color=_COLOURS[name], label=name)
        ax.errorbar(places, heights, yerr=[[0.0] * len(tops), tops], fmt="none", ecolor="black", elinewidth=0.8)
        ax.bar_label(bars, [_short(height) for height in heights], fontsize=6, padding=2)
    ax.set_xticks(range(len(groups)), groups)


def _legend(ax: Axes) -> None:
    ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2)


def _short(value: float) -> str:
    return "" if not value else f"{value:.0f}" if value >= 20 else f"{value:.1f}"
