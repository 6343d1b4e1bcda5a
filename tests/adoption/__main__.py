"""`python -m tests.adoption`: adopts stores of other programs as they are; the last line of output is JSON.

Eight shapes are made by SQL, and four tables by the programs themselves. Each is written by its own writer before and
after the adoption, and a question without one of its words must find a memory. Tables that cannot be adopted must be
named with everything that is wrong at the first look.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import typer

from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from tests.adoption import programs
from tests.adoption.adopting import (
    Outcome,
    Written,
    adopt_store,
    is_named_at_once,
    new_database,
    postgres,
    sql_writer,
)
from tests.support.bad_tables import BAD_TABLES
from tests.support.embedder_process import running_embedder
from tests.support.foreign_stores import FOREIGN_STORES
from tests.support.postgres_instance import PostgresInstance


def prove() -> None:
    """Adopt each store, look at each bad table, and print the figures; the status is 1 if one is not as required."""
    settings, reporter = Settings(), ConsoleReporter()
    with reporter.step("Install the programs"):
        python = programs.environment(settings)
    with postgres() as server, running_embedder(settings.cache_dir / "models" / "all-MiniLM-L6-v2.gguf") as embedder:
        with reporter.step("Adopt stores"):
            outcomes = list(_outcomes(server, python, embedder))
        with reporter.step("Look at bad tables"):
            named = [
                is_named_at_once(bad, new_database(server, f"bad{number}")) for number, bad in enumerate(BAD_TABLES)
            ]
    for outcome in outcomes:
        if outcome.missing or outcome.changed or not outcome.written or not outcome.answered:
            typer.echo(f"not met: {outcome}", err=True)
    figures = {
        "stores": len(outcomes),
        "own_writer_unchanged": _share([outcome.written for outcome in outcomes]),
        "answered_by_meaning": _share([outcome.answered for outcome in outcomes]),
        "user_statements_changed": sum(outcome.changed for outcome in outcomes),
        "minutes_from_docs": round(max(outcome.minutes for outcome in outcomes), 1),
        "bad_tables": len(named),
        "bad_tables_named_at_once": _share(named),
    }
    typer.echo(json.dumps(figures))
    met = figures["user_statements_changed"] == 0 and all(
        figures[name] == "all" for name in ("own_writer_unchanged", "answered_by_meaning", "bad_tables_named_at_once")
    )
    raise typer.Exit(0 if met else 1)


def _outcomes(server: PostgresInstance, python: Path, embedder: str) -> Iterator[Outcome]:
    for number, store in enumerate(FOREIGN_STORES):
        dsn = new_database(server, f"store{number}")
        text = store.used.get("content", "content")
        writer = sql_writer(dsn, store.create, store.write, text, store.relation)
        yield adopt_store(
            server,
            Written(store.name, dsn, store.table, writer),
            embedder,
            options=store.options,
        )
    for program in programs.PROGRAMS:
        dsn = new_database(server, program.name.replace("-", "_"))
        write = partial(programs.write, python, program, dsn, embedder)
        yield adopt_store(
            server,
            Written(program.name, dsn, program.table, write),
            embedder,
            options=("--no-sensitive",),
        )


def _share(held: list[bool]) -> str:
    """Return "all", or how many of them hold."""
    return "all" if all(held) else f"{sum(held)} of {len(held)}"


if __name__ == "__main__":
    typer.run(prove)
