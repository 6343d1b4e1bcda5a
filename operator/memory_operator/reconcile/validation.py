"""Decide whether a specification contradicts the model, the database or this version of the operator.

A contradiction blocks the MemoryIndex: its objects stay, and nothing is changed. The Kubernetes API server refuses most
contradictions already. The checks here also work with an older or newer custom resource definition, and they compare
the specification with the database.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.active_embedder import needs_swap
from memory_operator.reconcile.embedder import OTHER_FILE_REMEDY
from memory_operator.resources.columns import column_names
from memory_operator.resources.embedder import embedder_options, own_digest
from memory_recall.embedding.apis import EmbedderApi
from memory_recall.embedding.canary import may_be_same_file
from memory_recall.embedding.profiles import PROFILES
from memory_recall.errors import InvalidConfiguration
from memory_recall.status import DatabaseFacts


def blocking_verdict(index: MemoryIndex, facts: DatabaseFacts | None) -> Verdict | None:
    """Return a failing verdict that says what blocks the MemoryIndex; None if nothing does."""
    return _specification(index) or (_against_database(index, facts) if facts else None)


def _specification(index: MemoryIndex) -> Verdict | None:
    embedding = index.spec.embedding
    try:
        column_names(index)
    except InvalidConfiguration as error:
        return Verdict.no(Reason.INVALID_SPEC, f"spec.database.columns: {error.message}", error.remedy)
    ref = index.spec.embedder.ref
    if ref and (ref.namespace, ref.name) == (index.namespace, index.name):
        message = "spec.embedder.ref names this object itself, which then has no embedder."
        return Verdict.no(
            Reason.INVALID_SPEC, message, "Remove it, or name the MemoryIndex whose embedder is to be used."
        )
    profile = PROFILES.get(embedding.model)
    if profile is None and (embedding.model == "custom" or embedder_options(index).api is not EmbedderApi.MEMORY_INDEX):
        return None
    if profile is None:
        return Verdict.no(
            Reason.UNKNOWN_MODEL,
            f"spec.embedding.model {embedding.model} has no profile; known: {', '.join(sorted(PROFILES))}, custom.",
        )
    if not profile.yields(embedding.dimensions):
        return Verdict.no(
            Reason.DIMENSION_MISMATCH,
            f"spec.embedding.dimensions is {embedding.dimensions}, but {embedding.model} yields {profile.choices}.",
            f"Set spec.embedding.dimensions to {profile.choices}.",
        )
    return None


def _against_database(index: MemoryIndex, facts: DatabaseFacts) -> Verdict | None:
    embedding, database = index.spec.embedding, index.spec.database
    if needs_swap(index, facts):
        return None
    wanted, recorded = own_digest(index), facts.active_model.digest if facts.active_model else None
    if not may_be_same_file(recorded, wanted):
        return Verdict.no(
            Reason.MODEL_MISMATCH,
            f"The vectors in {database.name}.{database.table} were made with the file {recorded} of {embedding.model}, "
            f"and spec.embedding names {wanted}.",
            OTHER_FILE_REMEDY,
        )
    may_have_vectors = facts.rows.embedded or facts.rows.estimated
    replaceable = database.existing_vectors == "Discard" and not may_have_vectors
    if facts.embedding_dimensions and facts.embedding_dimensions != embedding.dimensions and not replaceable:
        return Verdict.no(
            Reason.DIMENSION_MISMATCH,
            f"spec.embedding.dimensions is {embedding.dimensions}, but column {database.table}.embedding of "
            f"{database.name} has {facts.embedding_dimensions}.",
        )
    return None
