"""The command `python -m docs.makers`: writes the pages of `docs/reference/` from the code."""

from docs.makers.references import PAGES, write_pages


def main() -> None:
    """Write every reference page, and print the names of those that have changed."""
    for name in write_pages():
        print(f"{name} has changed")
    print(f"{len(PAGES)} reference pages are those of the code")


if __name__ == "__main__":
    main()
