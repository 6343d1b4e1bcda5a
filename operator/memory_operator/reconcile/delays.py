"""Define how delays between repeated attempts grow."""

_MOST_DOUBLINGS = 64  # more than any delay needs to reach its longest, and few enough for a float


def doubled(first: float, longest: float, times: int) -> float:
    """Return a delay that is `first` and has been doubled `times` times (0 or more), but is at most `longest`."""
    return min(longest, first * 2.0 ** min(times, _MOST_DOUBLINGS))
