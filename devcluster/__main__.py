"""Entry point of `python -m devcluster`."""

from devcluster.cli import main

if __name__ == "__main__":
    main()
