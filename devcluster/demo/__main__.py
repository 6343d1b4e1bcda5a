"""Entry point of `python -m devcluster.demo`."""

from devcluster.demo.app import main

if __name__ == "__main__":
    main()
