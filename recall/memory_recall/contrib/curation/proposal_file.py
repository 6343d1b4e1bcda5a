"""The file of proposals, which a person reads and may change before anything is applied.

It holds one JSON object a line, best first, with both texts, and only its owner may read it. To refuse a proposal, its
line is removed or its `action` is set to ADD or NOOP. The keyed hashes of the texts let `memory curate apply` skip a
pair of which a text has changed since.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from memory_recall.contrib.curation.decisions import APPLIED, Action, Decider, Judgement
from memory_recall.errors import InvalidInput
from memory_recall.private_file import write_private_file
from memory_recall.schema.columns.keys import MemoryId

MAX_PROPOSALS = 10_000
MAX_BYTES = 256 * 1024 * 1024
Id = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)] | StrictStr
Hash = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class Proposal(BaseModel):
    """One line of the file: the newer memory `superseded_by` and the older memory `id`, and what to do with them.

    `score` (0 to 1) says how likely the newer memory restates the older one, and `decided_by` whether a language model
    was asked for it, or the rules alone. The texts are for the reader alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    action: Action
    decided_by: Decider
    id: Id
    superseded_by: Id
    score: float = Field(ge=0, le=1)
    older: str = Field(repr=False)
    newer: str = Field(repr=False)
    text_hash: Hash
    successor_hash: Hash


def proposal_from(judgement: Judgement) -> Proposal:
    """Return the line of a pair that was judged."""
    older, newer = judgement.pair.older, judgement.pair.newer
    return Proposal(
        action=judgement.action,
        decided_by=judgement.decided_by,
        id=older.id,
        superseded_by=newer.id,
        score=round(judgement.score, 3),
        older=older.content,
        newer=newer.content,
        text_hash=older.text_hash,
        successor_hash=newer.text_hash,
    )


def require_new_file(path: Path) -> None:
    """Refuse a path at which no new file can be made.

    Raises:
        InvalidInput: there is a file already, or its folder is none that may be written to.
    """
    if path.exists():
        raise InvalidInput(f"{path} exists already.", "Name another file, or remove that one.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"{path} cannot be written.", "Name a file in a folder that you may write to.")


def write_proposals(path: Path, proposals: Sequence[Proposal]) -> Sequence[Proposal]:
    """Write a new file of proposals with mode 0600, and return those that were written.

    These are the best ones, as many as `read_proposals` reads of one file.

    Raises:
        InvalidInput: the file exists already, or cannot be written.
    """
    require_new_file(path)
    content, written = bytearray(), 0
    for proposal in proposals[:MAX_PROPOSALS]:
        line = orjson.dumps(proposal.model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE)
        if len(content) + len(line) > MAX_BYTES:
            break
        content += line
        written += 1
    write_private_file(path, bytes(content))
    return proposals[:written]


def read_proposals(path: Path) -> list[Proposal]:
    """Read a file of proposals. No error quotes the file, which holds memories.

    Raises:
        InvalidInput: the file cannot be read or is too large, a line is no proposal, or a memory has two successors.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({type(error).__name__}).", "Make it with memory curate find."
        ) from None
    lines = content.splitlines()
    if len(content) > MAX_BYTES or len(lines) > MAX_PROPOSALS:
        raise InvalidInput(
            f"{path} has more than {MAX_PROPOSALS:,} lines or {MAX_BYTES:,} bytes.", "Split it into several files."
        )
    proposals: list[Proposal] = []
    succeeded: set[MemoryId] = set()
    for number, line in enumerate(lines, 1):
        proposal = _parsed(path, number, line)
        if proposal.action in APPLIED:
            if proposal.id in succeeded:
                raise InvalidInput(
                    f"Line {number} of {path} gives memory {proposal.id} a second successor.", "Keep one of the lines."
                )
            succeeded.add(proposal.id)
        proposals.append(proposal)
    return proposals


def _parsed(path: Path, number: int, line: bytes) -> Proposal:
    try:
        return Proposal.model_validate_json(line)
    except ValidationError as error:
        # The name of a field that is not ours could be any text.
        fields = {str(place) for one in error.errors(include_input=False) for place in one["loc"][:1]}
        problems = sorted(fields & set(Proposal.model_fields)) or ["it has other fields"]
    raise InvalidInput(
        f"Line {number} of {path} is no proposal ({', '.join(problems)}).",
        "Correct or remove the line, or run memory curate find again.",
    )
