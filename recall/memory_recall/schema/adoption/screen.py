"""Renders the plan of an adoption as one screen of lines for people, and as one object for programs."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.schema.adoption.estimates import CHARACTERS_A_TOKEN, OFTEN, TEXTS_A_SECOND, VECTORS_A_SECOND
from memory_recall.schema.adoption.existing_columns import existing_vector_ways, vector_columns_of_others
from memory_recall.schema.adoption.fillfactor import fillfactor_statements
from memory_recall.schema.adoption.observations import TextObservation
from memory_recall.schema.adoption.plan import AdoptionPlan
from memory_recall.schema.adoption.proposal import NOT_FOUND, Choice
from memory_recall.schema.adoption.settings_output import environment, export_lines, resource, yaml_lines
from memory_recall.schema.columns.names import EMBEDDING
from memory_recall.schema.columns.text_search import KEPT_CASE
from memory_recall.schema.requirements.used_columns import vector_faults
from memory_recall.schema.table import ACTIVE, STANDBY, quoted_if_needed

_KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}
_CHOOSING = "(MEMORY_TEXT_SEARCH_CONFIGURATION chooses another configuration)"
_HOT = (
    "An update that changes no indexed column and finds room on its row's page touches no index (HOT); beside a vector "
    "index any other update takes many times as long."
)


def adoption_screen(plan: AdoptionPlan) -> list[str]:
    """Return the lines of one screen: what the table is, what is used, what is missing, what it costs, what to set."""
    return [
        *_head(plan),
        *_section("Used for", _columns(plan)),
        *_section("To be decided", _questions(plan)),
        *_section("At fault", _faults(plan)),
        *_section("Vectors that are there", _vectors(plan)),
        *_section("Texts", _texts(plan)),
        *_section("Costs", _costs(plan)),
        *_section("Updates by others", _updates(plan)),
        *_section("Settings", export_lines(plan)),
        *_section("In a cluster", yaml_lines(resource(plan))),
        "",
        _next(plan),
    ]


def adoption_object(plan: AdoptionPlan) -> dict[str, Any]:
    """Return all of the screen as one object for JSON."""
    return {
        "table": {
            "schema": plan.table.schema,
            "name": plan.table.name,
            "kind": _KINDS.get(plan.table.kind, plan.table.kind),
            "revision": plan.revision,
            "rows": plan.seen.rows,
            "rows_counted": plan.seen.counted,
            "bytes": plan.seen.table_bytes,
            "index_bytes": plan.seen.index_bytes,
            "primary_key": list(plan.seen.primary_key),
            "namesakes": list(plan.namesakes),
        },
        "database": {
            **dataclasses.asdict(plan.database),
            "text_search_configuration": plan.table.text_search_configuration,
        },
        "columns": [
            {"name": one.name, "sources": _sources(plan, one), "reason": one.reason} for one in plan.proposal.choices
        ],
        "unused_columns": _unused(plan),
        "questions": [
            {
                "name": one.name,
                "message": one.message,
                "remedy": one.remedy,
                "candidates": [str(source) for source in one.candidates],
            }
            for one in plan.proposal.questions
        ],
        "faults": [{"message": one.message, "remedy": one.remedy} for one in plan.faults],
        "existing_vectors": list(_vectors(plan)),
        "publications": list(plan.seen.publications),
        "triggers": list(plan.seen.triggers),
        "texts": dataclasses.asdict(plan.texts),
        "costs": dataclasses.asdict(plan.costs),
        "updates": dataclasses.asdict(plan.updates),
        "settings": environment(plan),
        "resource": resource(plan),
        "statements": _fillfactor_statements(plan),
        "adoptable": plan.adoptable,
    }


def _section(title: str, lines: Iterator[str] | Sequence[str]) -> list[str]:
    found = list(lines)
    return ["", title, *(f"  {line}".rstrip() for line in found)] if found else []


def _head(plan: AdoptionPlan) -> Iterator[str]:
    seen, database = plan.seen, plan.database
    about = "" if seen.counted else "about "
    yield (
        f"{plan.table.qualified}: {_KINDS.get(plan.table.kind, plan.table.kind)}, {about}{seen.rows:,} rows, "
        f"{_size(seen.table_bytes)}, indexes {_size(seen.index_bytes)}, "
        f"primary key {', '.join(seen.primary_key) or 'none'}"
        f"{'' if plan.revision is None else f', adopted (revision {plan.revision})'}"
    )
    if plan.namesakes:
        yield (
            f"  Of the same name there is also {', '.join(plan.namesakes)}. Name the one that is meant with its "
            f"schema, such as {plan.table.schema}.{plan.table.name}, so that every role finds it."
        )
    yield (
        f"Postgres {database.server_version}, database {database.name}, {database.encoding}, locale {database.locale}; "
        f"words of the text search configuration {plan.table.text_search_configuration}"
    )
    if not database.folds_case:
        yield f"  {KEPT_CASE}"
    if database.extension is None:
        remedy = (
            f"the server has {database.available}, and a superuser creates it with CREATE EXTENSION vector;"
            if database.available
            else "and the server does not have its files: install pgvector there, or take an image that has it."
        )
        yield f"  The extension vector (pgvector) is not created in this database; {remedy}"


def _sources(plan: AdoptionPlan, choice: Choice) -> list[str]:
    """Return the columns, or paths into them, that are used for a column of ours; none if one is missing."""
    there = all(source.column in plan.table.catalog for source in choice.sources)
    return [str(source) for source in choice.sources] if there else []


def _columns(plan: AdoptionPlan) -> Iterator[str]:
    rows, without = [], []
    for choice in plan.proposal.choices:
        sources = _sources(plan, choice)
        if choice.name == "search_vector" and not sources:
            configuration = plan.table.text_search_configuration
            rows.append(
                (choice.name, "ours", f"{choice.reason}; ours is filled in batches, in {configuration} {_CHOOSING}")
            )
        elif not sources and choice.reason == NOT_FOUND:
            without.append(choice.name)
        else:
            rows.append((choice.name, " and ".join(sources) or "-", choice.reason))
    first, second = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    yield from (f"{name:<{first}}  {source:<{second}}  {reason}" for name, source, reason in rows)
    if without:
        yield f"Nothing was found for {', '.join(without)}; --column {without[0]}=COLUMN names one."
    if unused := _unused(plan):
        yield f"Used for nothing: {', '.join(map(quoted_if_needed, unused))}."


def _unused(plan: AdoptionPlan) -> list[str]:
    """Return the columns that have no use here; some may only have names in another language than English."""
    used, vectors = plan.proposal.columns, vector_columns_of_others(plan.table)
    ours = {plan.table.vector_name(column) for column in (ACTIVE, STANDBY)}
    return [
        name
        for name, kind in plan.table.catalog.items()
        if name not in used and name not in vectors and name not in ours and kind != "tsvector"
    ]


def _questions(plan: AdoptionPlan) -> Iterator[str]:
    for question in plan.proposal.questions:
        yield question.message
        yield f"  {question.remedy}"


def _faults(plan: AdoptionPlan) -> Iterator[str]:
    for fault in plan.faults:
        yield fault.message
        yield f"  {fault.remedy}"


def _vectors(plan: AdoptionPlan) -> Iterator[str]:
    if plan.revision is None:
        if plan.table.embedding_dimensions == plan.request.model.dimensions and not vector_faults(plan.table):
            yield from existing_vector_ways(plan.table, plan.request.model)
        others = vector_columns_of_others(plan.table)
        if others:
            ours = plan.table.vector_name(ACTIVE)
            yield f"Left as it is: {', '.join(map(quoted_if_needed, others))}. Our vectors are in {ours}."
            if EMBEDDING in others:
                yield (
                    f"If {plan.request.model.name} made all of {EMBEDDING} from the present texts, they can be kept: "
                    f"--column {EMBEDDING}={EMBEDDING} says what has to be done."
                )


def _texts(plan: AdoptionPlan) -> Iterator[str]:
    texts, model = plan.texts, plan.request.model
    if not texts.rows:
        return
    yield (
        f"Of {texts.rows:,} rows read: {texts.texts:,} have a text, {texts.sensitive:,} are secret, "
        f"{texts.deleted:,} deleted; {texts.mean_characters:,.0f} characters on average."
    )
    if texts.window is not None:
        share = texts.longer / texts.rows
        yield (
            f"Longer than {model.name} reads ({model.max_tokens:,} tokens, about {texts.window:,} characters at "
            f"{CHARACTERS_A_TOKEN} a token): {100 * share:.0f} %, about {plan.seen.rows * share:,.0f} rows. "
            "What follows is not in their vectors."
        )
    if texts.scripts:
        counted = sorted(texts.scripts.items(), key=lambda one: -one[1])
        yield f"Scripts: {', '.join(f'{name} {100 * count / texts.texts:.0f} %' for name, count in counted)}."
    yield from language_lines(model, texts)


def language_lines(model: ModelProfile, texts: TextObservation) -> Iterator[str]:
    """Say for which languages the model is, and how many texts are in scripts beyond it, if any script is."""
    if model.scripts is None:
        return
    beyond = texts.beyond(model.scripts)
    others = f", and {100 * beyond / texts.texts:.0f} % of the texts are in scripts beyond it" if beyond else ""
    yield (
        f"{model.name} is made for {model.languages}{others}. "
        "It finds texts of other languages little better than by chance; multilingual-e5-small is for 100 languages."
    )


def _costs(plan: AdoptionPlan) -> Iterator[str]:
    costs, model = plan.costs, plan.request.model
    yield (
        f"Space: {costs.rows:,} vectors of {model.dimensions:,} dimensions {_size(costs.vector_bytes)}, their index "
        f"{_size(costs.index_bytes)}"
        f"{'' if 'search_vector' in plan.table.columns else f', our search column {_size(costs.word_bytes)}'}."
    )
    yield (
        f"Time: {_duration(costs.embedding_seconds)} at {TEXTS_A_SECOND} texts a second (all-MiniLM-L6-v2 on two "
        f"cores; a larger model is slower, a GPU faster), then {_duration(costs.index_seconds)} for the index at "
        f"{VECTORS_A_SECOND:,} vectors a second."
    )
    yield (
        "Locks: memory migrate adds an empty column, triggers and constraints; each waits at most 0.1 s for its lock, "
        "holds it for a moment and tries again later. The backfill locks the rows of a batch, the indexes are built "
        "CONCURRENTLY. Nothing rewrites the table."
    )
    if plan.database.prepared_transactions:
        yield (
            "Two-phase commit: the server allows it, and PREPARE TRANSACTION will fail after a text was written or "
            "edited whose row may have a vector, since a trigger of ours has notified in that transaction."
        )
    if plan.seen.publications:
        yield (
            f"Publications: {', '.join(map(quoted_if_needed, plan.seen.publications))} will have the added columns, "
            "too, and a subscriber that lacks them stops at the next change of a row, while the server keeps the "
            "write-ahead log for it. Before the migration, let the publication name the columns of the table that it "
            "has now, or add ours to the subscriber."
        )
    if plan.seen.triggers:
        yield (
            f"Triggers: {', '.join(map(quoted_if_needed, plan.seen.triggers))} will fire at each update that stores a "
            "vector or makes the words of a text, once for every row in the backfill and in each swap, unless a WHEN "
            "compares columns of yours. What one changes in the row itself is undone then; what it writes elsewhere, "
            "such as a history of the row, stays."
        )


def _updates(plan: AdoptionPlan) -> Iterator[str]:
    updates = plan.updates
    if updates.updates:
        since = f" since {updates.since}" if updates.since else ""
        yield (
            f"{updates.updates:,} updates{since}, {100 * updates.hot / updates.updates:.0f} % of them HOT; "
            f"fillfactor {updates.fillfactor}. {_HOT}"
        )
    if statements := _fillfactor_statements(plan):
        why = "chosen" if plan.request.fillfactor else f"proposed where one row in {OFTEN} or more has been updated"
        yield f"So that pages keep room ({why}), before the backfill, or by --apply --fillfactor {plan.fillfactor}:"
        yield from (f"  {statement};" for statement in statements)


def _fillfactor_statements(plan: AdoptionPlan) -> list[str]:
    if plan.fillfactor is None or plan.table.kind not in {"r", "p"}:
        return []
    return fillfactor_statements(plan.table, plan.fillfactor)


def _next(plan: AdoptionPlan) -> str:
    if plan.revision is not None and plan.adoptable:
        return "It is adopted; memory status says where it stands."
    if plan.adoptable:
        return "Nothing is missing. Next: memory adopt with --apply, or memory migrate with these settings."
    return "Nothing was changed. It can be adopted when what is named above is decided and mended."


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1024 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "bytes" or number >= 10 else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
