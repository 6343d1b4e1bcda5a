"""What a worker has done so far, in numbers."""

from dataclasses import dataclass


@dataclass
class Tally:
    """What has been done so far; `changed` rows were edited, hidden or deleted while their vector was made."""

    read: int = 0
    embedded: int = 0
    changed: int = 0
    truncated: int = 0
    failed: int = 0
    quarantined: int = 0
    failed_batches: int = 0
    tokens: int = 0
