"""The state of the index as the page shows it: the counts and names that `memory status` prints as JSON."""

from dataclasses import dataclass

from memory_recall.hnsw.definition import IndexFacts
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.status import DatabaseFacts


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A fact about the index: what it is called on the page, and its value as the page shows it."""

    name: str
    value: str


def shown_facts(facts: DatabaseFacts) -> tuple[ShownFact, ...]:
    """Return what the page shows of the state of a database: no text of a memory, and no credentials."""
    rows, active = facts.rows, facts.active_model
    counts = {
        "Memories": rows.total,
        "Embedded": rows.embedded,
        "Pending": rows.pending,
        "Sensitive, without a vector": rows.sensitive,
        "Quarantined": rows.quarantined,
        "Longer than the model reads": rows.truncated,
        "Not found by words yet": rows.without_words,
    }
    texts = {
        "Active model": _model(active),
        "Usual cosine": _usual_cosine(active),
        "Next model": _model(facts.next_model),
        "Last swap": "none" if facts.swap is None else facts.swap.stage,
        "Vector index": _vector_index(facts.index),
        "Concept graph": _graph(facts),
        "pgvector": facts.extension_version or "not installed",
        "Schema": _schema(facts),
    }
    shown = [ShownFact(name, f"{count:,}") for name, count in counts.items()]
    shown += [ShownFact(name, text) for name, text in texts.items()]
    return (*shown, *(ShownFact("To be mended", f"{fault.message} {fault.remedy}") for fault in facts.faults))


def _model(model: RecordedModel | None) -> str:
    return "none" if model is None else f"{model.name}, {model.dimensions} dimensions"


def _usual_cosine(model: RecordedModel | None) -> str:
    if model is None or model.usual_cosine is None:
        return "not found yet; backfill and sync find it"
    return f"{model.usual_cosine:.3f}"


def _vector_index(index: IndexFacts) -> str:
    if index.progress is not None:
        fraction = index.progress.fraction
        done = "" if fraction is None else f", {fraction:.0%}"
        return f"being built: {index.progress.phase}{done}"
    if not index.exists:
        return "none; memory index build makes it"
    return f"{index.name}, {'valid' if index.valid else 'not valid'}{'' if index.ours else ', of another program'}"


def _graph(facts: DatabaseFacts) -> str:
    graph = facts.graph
    if graph is None or not graph.exists:
        return "none"
    if not graph.enabled:
        return "paused"
    return f"{'filled' if graph.filled else 'being filled'}, {graph.pending:,} changes pending"


def _schema(facts: DatabaseFacts) -> str:
    if facts.schema_revision is None:
        return "not migrated; memory migrate does it"
    if facts.schema_current:
        return f"revision {facts.schema_revision}, the last one"
    if facts.schema_ahead:
        return f"revision {facts.schema_revision}, of a later release"
    differences = f"; it differs: {facts.schema_differences}" if facts.schema_differences else ""
    return f"revision {facts.schema_revision}, not as the last one requires{differences}"
