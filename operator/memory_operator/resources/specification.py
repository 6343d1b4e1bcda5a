"""Record on an embedder's Deployment from which specification its pods were made.

Another release of the operator may make other pods from the same specification. The record tells such a change from an
edit of the specification, which must be carried out even if a write of it has failed before.
"""

from memory_operator.api.spec import MemoryIndex
from memory_operator.resources.common import ANNOTATION_SPECIFICATION, fingerprint

# The fields of spec.embedding and spec.embedder that no pod depends on.
_NOT_OF_MODEL = {"query_egress"}
_NOT_OF_PODS = {
    "min_replicas", "max_replicas", "target_queue_seconds", "scale_down_delay_seconds", "scaling", "allow_from",
    "external", "ref",
}  # fmt: skip


def record_of_specification(index: MemoryIndex, *, overlap: bool) -> dict[str, str]:
    """Return an annotation with a digest of those fields of the specification that the embedder's pods depend on.

    It does not depend on the release of the operator: fields that hold their defaults are left out, so that a field
    which a later release adds is no edit. `overlap` says whether pods serve while others are replaced, which is all
    that the pods take from the bounds of their number.
    """
    embedding = index.spec.embedding.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_OF_MODEL)
    embedder = index.spec.embedder.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_OF_PODS)
    return {ANNOTATION_SPECIFICATION: fingerprint([embedding, embedder, overlap])}
