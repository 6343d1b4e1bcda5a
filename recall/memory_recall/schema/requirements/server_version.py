"""The server must be of a release that has the functions which our statements call."""

from memory_recall.schema.requirements.faults import Fault

_OLDEST = 16  # the first with `pg_input_is_valid`, by which a value at a path of JSON is read


def server_faults(major: int) -> list[Fault]:
    """Return what is wrong with a server of this major version of Postgres."""
    if major >= _OLDEST:
        return []
    return [
        Fault(
            f"The server is Postgres {major}, and our statements need Postgres {_OLDEST} or later.",
            f"Upgrade the server to Postgres {_OLDEST} or later.",
        )
    ]
