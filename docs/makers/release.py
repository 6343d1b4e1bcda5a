"""The command `python -m docs.makers.release`: refuses a release whose pages quote figures of former code."""

import sys

from docs.makers.site.figures import RESULTS, measured


def main() -> None:
    """Print which kept figures were measured before the present code, and end with 1 if there are any."""
    found = {path.parent.name: measured(path) for path in sorted(RESULTS.glob("*/summary.json"))}
    former = {name: one for name, one in found.items() if one.changed}
    for name, one in former.items():
        print(f"{name} was measured on {one.day}, before the present {', '.join(one.changed)}")
    if former:
        sys.exit("Measure these again: make bench-..., with KEEP=1.")
    print(f"The figures of {len(found)} benchmarks are those of the present code")


if __name__ == "__main__":
    main()
