"""Rows that a ranking cannot get right by one leg alone."""

from typing import Any

from tests.integration.memory_recall.read_path.vectors import axis

TOPICS = ["zigbee dongle", "zfs scrub", "garden tomatoes", "router password", "backup of the zfs pool"]


async def fill(memories: Any) -> None:
    """Sixty rows that terms, vectors and importance each put in another order."""
    for number in range(60):
        await memories.add(
            " ".join([TOPICS[number % 5]] * (1 + number % 3)) + f" note {number} about the pool",
            vector=axis(1.0, ((number * 7) % 60) / 10),
            importance=((number * 13) % 10) / 10,
        )
