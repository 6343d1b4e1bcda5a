"""The benchmarks of the embedder, of its floods, of backfills and of recalls, each run at its smallest size.

Their other tests are beside those of the benchmarks; these take a minute each. `make flood-embedder` sends 10,000
requests and holds 704 clients; here it is 40 and 70, and a program stands in for llama-server.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("stand_in_llama_server.py")
PEERS = {"docs_vs_onnxruntime", "docs_vs_pytorch_f32", "docs_vs_pytorch_bf16", "query_vs_onnxruntime"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "memory_bench", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    program.chmod(0o755)
    return program


def test_a_run_writes_results_and_a_chart_and_ends_with_one_line_of_json(tmp_path: Path, peer: Path) -> None:
    done = bench("embedder", "--quick", "--output", str(tmp_path / "results"), "--llama-server", str(peer))
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    processor = last.pop("processor")
    measured = {name for name, value in last.items() if value is not None}
    assert measured == {
        "docs_vs_llama_server",
        "docs_vs_llama_embed",
        "docs_vs_raw",
        "query_idle_vs_raw",
        "query_idle_vs_llama_server_at_12_tokens",
        "query_idle_vs_llama_server_at_122_tokens",
        "query_under_bulk_vs_llama_server",
        "bulk_loss_to_lanes",
        "query_idle_p50_ms",
        "query_beside_reranking_p50_ms",
        "query_beside_reranking_bound_ms",
    }
    assert last.keys() >= PEERS, "what a short run leaves out is named, too"
    kept = json.loads((tmp_path / "results" / "all-MiniLM-L6-v2.json").read_text())
    assert kept["summary"] == last
    assert kept["machine"]["processor"] == processor != ""
    raw = json.loads((tmp_path / "results" / "raw" / "all-MiniLM-L6-v2.json").read_text())
    assert raw["least_cosine"] > 0.995
    subjects = {record["subject"] for record in raw["documents"]}
    assert subjects == {"memory-embedder", "llama-server", "raw loop", "Llama.embed", "Llama.embed (512)"}
    assert all(isinstance(last[name], float) for name in measured)


@pytest.mark.finding("embedder 1")
def test_a_process_survives_a_flood_stays_small_and_serves_others(tmp_path: Path) -> None:
    """How many requests of the flood stay unanswered is not asserted.

    With all connections taken, a client that is slow to send its request is told to come again, and on a busy machine
    the flood's own client is slow.
    """
    kept = tmp_path / "flood.json"
    done = bench("embedder-flood", "--count", "40", "--stalled", ".1", "--callers", "800", "--output", str(kept))
    written = json.loads(kept.read_text())
    line = json.loads(done.stdout.splitlines()[-1])
    assert written["outcome"] == line, done.stderr
    assert (line["requests"], line["crashes"]) == (40, 0)
    assert line["innocent_failures"] == written["details"]["poisoned"]["poisoned_otherwise"] == 0
    assert line["rss_mb"] <= 1500
    assert (line["callers"], line["resets"]) == (800, 0)
    sent, held = written["details"]["sent"], written["details"]["held"]
    assert sent["server_errors"] == sent["malformed_accepted"] == 0
    assert all(opened > 0 for opened in held["opened"].values())
    for others in (written["details"]["health"], written["details"]["queries"]):
        assert others["requests"] > others["failures"]


def test_what_callers_take_from_one_another_is_measured_by_callers_with_keys_of_their_own(tmp_path: Path) -> None:
    """How much it is, is not asserted."""
    kept = tmp_path / "figures.json"
    done = bench("shared-embedder", "--texts", "64", "--seconds", "10", "--output", str(kept))
    line, written = json.loads(done.stdout.splitlines()[-1]), json.loads(kept.read_text())["figures"]
    assert line == {name: written[name] for name in ("query_p50_beside_alone", "share_unequal", "documents")}
    assert min(written["alone"]["queries"], written["beside"]["queries"]) > 0
    assert min(written["documents"], *written["shares"]) > 0


def test_the_command_ends_with_one_line_of_figures_and_writes_results_and_chart(tmp_path: Path) -> None:
    ran = bench(
        "backfill", "--dataset", "examples/homelab", "--output", str(tmp_path), "--real-rows", "24",
        "--real-seconds", "0", "--rows", "2500", "--null-seconds", "0", "--small", "500",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    headline = json.loads(ran.stdout.splitlines()[-1])
    assert set(headline) == {
        "vs_embedder", "null_vs_bare_update", "rss_growth", "double_embedded", "user_update_ratio",
    }  # fmt: skip
    assert headline["double_embedded"] == 0
    raw = json.loads((tmp_path / "results.json").read_text())
    assert raw["embedder"]["rows"] == 24
    assert {run["side"] for run in raw["embedder"]["runs"]} == {"embedder", "backfill"}
    assert len([run for run in raw["null"]["runs"] if run["side"] == "null-backfill"]) == 2
    peaks = [run["peak_rss_kib"] for run in raw["null"]["runs"]]
    assert len(set(peaks)) > 1, "each process has a peak of its own, not that of the one that started it"


def test_the_command_measures_each_design_warm_and_cold(tmp_path: Path) -> None:
    """The last line has the figures of this size; a cold recall reads what a warm one finds in memory."""
    ran = bench(
        "latency", "--rows", "5000", "--questions", "20", "--warm-up", "10", "--cold-rounds", "1", "--checked", "2",
        "--graph", "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "results"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    headline = json.loads(ran.stdout.splitlines()[-1])
    assert set(headline) == {
        "p95_5k_vs_plain", "embedder_stopped_adds_ms", "or_overlap", "ann_recall", "graph_added_p95_ms",
    }  # fmt: skip
    (size,) = json.loads((tmp_path / "results" / "latency.json").read_text())["sizes"]
    reads = {(one["arm"], one["condition"]): one for one in size["arms"]}
    assert len(reads) == 18
    for arm in ("ours", "plain"):
        warm, cold = reads[arm, "warm"], reads[arm, "cold"]
        assert warm["buffers_hit"] > 100
        assert cold["buffers_read"] > warm["buffers_read"]
        assert (len(warm["first_milliseconds"]), len(cold["first_milliseconds"])) == (0, 1)
    assert size["index_gib"] > 0


def test_recalls_of_a_fleet_are_measured_on_both_instances_behind_the_pooler(tmp_path: Path) -> None:
    """At one rate so low that a busy machine sustains it; every part has used processor time by the end."""
    ran = bench(
        "fleet", "--only", "recalls", "--rows", "5000", "--users", "2", "--rate", "5", "--seconds", "4",
        "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "results"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    headline = json.loads(ran.stdout.splitlines()[-1])
    assert set(headline) == {
        "recalls_per_s", "recall_p95_ms", "recalls_bound_by", "processor_ms_per_recall", "rows", "users",
    }  # fmt: skip
    (rate,) = json.loads((tmp_path / "results" / "fleet.json").read_text())["rates"]
    assert rate["answered"] + sum(rate["degraded"].values()) + sum(rate["refused"].values()) == rate["asked"] == 20
    parts = rate["usage"]["parts"]
    assert set(parts) == {"primary", "replica", "pooler", "embedder", "recall library"}
    assert min(parts["primary"], parts["replica"], parts["embedder"], parts["recall library"]) > 0
    assert (tmp_path / "results" / "fleet.png").stat().st_size > 0
