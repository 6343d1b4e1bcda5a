"""Converts errors of the database driver into `MemoryIndexError`.

An error of Postgres can quote the row that caused it, in its fields `detail` and `where` and in its message. Therefore
the conversion takes only the SQLSTATE and the class name. It also clears the original error, which Python would
otherwise keep as the `__context__` of the new error.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from memory_recall.errors import (
    AuthenticationFailed,
    DatabaseFull,
    DatabaseRejected,
    DatabaseUnreachable,
    InvalidConfiguration,
    LockNotAvailable,
    MemoryIndexError,
    ServerNotVerified,
)

_CONNECTION = "08"
_TRANSIENT_CLASSES = (_CONNECTION, "53", "57")  # and resources (memory, connections), operator intervention
_DISK_FULL = "53100"  # also where a container's shared memory is too small for parallel workers
_READ_ONLY = "25006"  # what a primary says once it has become a replica
_NO_LOGIN = "28000"  # no line of pg_hba lets the role in, or not with this certificate or without one
_PASSWORD = "Check the Secret that holds the connection string."  # noqa: S105 - what to do about a refused one
_LOGIN = (
    "Check the role in the connection string and the server's pg_hba; where that demands a client certificate (cert), "
    "the certificate's common name must be that role."
)
_OF_A_ROW = ("22", "23", "P0")  # data, constraints, and what a PL/pgSQL trigger raises
_RETRY = {"40001", "40P01", "55P03"}  # serialisation, deadlock, lock timeout
_OF_ANOTHER_SESSION = (
    "A connection pooler gives each transaction another session, which lacks the prepared statements: create the pool "
    "of connections with statement_cache_size=0, or set max_prepared_statements in PgBouncer (1.21 or newer)."
)
_REMEDIES = {
    **dict.fromkeys(("26000", "42P05"), _OF_ANOTHER_SESSION),  # no such prepared statement, or another of its name
    "42501": "Run this as the role that owns the table (the database owner of the CloudNativePG cluster).",
    "2BP01": "Something of others, such as a view, depends on what is to be dropped; drop it, and run this again.",
    "57014": "A statement timeout is set for this role, or somebody cancelled the statement.",
    _READ_ONLY: (
        "Nothing to do during a failover. Otherwise look for default_transaction_read_only: it may be set for the "
        "role, the database or the server, also by a provider whose disk is nearly full."
    ),
    _DISK_FULL: "Enlarge the database's volume, or its /dev/shm where Postgres's log names a shared memory segment.",
    "53300": "Raise max_connections or close idle connections.",
}
_AUTHORITY = (
    "Give the certificates of the authority that signs the server's certificate: spec.database.tls.caSecret, or "
    "outside of Kubernetes MEMORY_DATABASE_CA_FILE."
)
_OTHER_NAME = (
    "the certificate is of another host",
    "Write a host that the certificate names into the connection string, or demand verify-ca (VerifyCA) alone.",
)
_UNKNOWN_AUTHORITY = ("an authority has signed it that is not trusted", _AUTHORITY)
_REFUSED_CERTIFICATES = {  # by OpenSSL's code
    **dict.fromkeys((2, 7, 18, 19, 20, 21, 24, 30), _UNKNOWN_AUTHORITY),
    9: ("the certificate is not valid yet", "Compare the clocks of both machines."),
    10: ("the certificate has expired", "Renew it: CloudNativePG does unless its operator does not run."),
    **dict.fromkeys((62, 64), _OTHER_NAME),
}
_OF_THE_ROLE = (
    "Issue a certificate whose common name is the role of the connection string, signed by the authority of the "
    "server's clients, and store it with its key where the present one is; it is read at the next connect."
)
_REFUSED_CLIENTS = {  # by the alert that the server sends
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked",
    "TLSV1_ALERT_UNKNOWN_CA": "an authority has signed it that the server does not trust for clients",
    **dict.fromkeys(
        ("SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"),
        "the server cannot use it, for example because it is not valid yet",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it demands one, and got none",
}
_LEAKING_FIELDS = ("detail", "hint", "where", "message", "internal_query", "query", "constraint_name")

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def _wipe(error: BaseException) -> None:
    for name in _LEAKING_FIELDS:
        if getattr(error, name, None) is not None:
            setattr(error, name, None)
    error.args = ("withheld",)
    # Causes and the variables of frames hold what was being sent: an encoding error carries the whole text.
    error.__cause__ = error.__context__ = error.__traceback__ = None


def _from_postgres(error: asyncpg.PostgresError, action: str) -> MemoryIndexError:
    sqlstate = error.sqlstate or ""
    what = f"{type(error).__name__}, SQLSTATE {sqlstate}"
    remedy = _REMEDIES.get(sqlstate, "")
    if sqlstate.startswith("28"):
        text = f"Postgres refused the credentials while {action} ({what})."
        return AuthenticationFailed(text, _LOGIN if sqlstate == _NO_LOGIN else _PASSWORD, sqlstate=sqlstate)
    if sqlstate == "3D000":
        return InvalidConfiguration(f"The database does not exist ({what}).", "Correct the database's name.")
    if sqlstate in _RETRY:
        return LockNotAvailable(f"Another session held a lock while {action} ({what}).", "It is safe to try again.")
    if sqlstate == _DISK_FULL:
        return DatabaseFull(f"Postgres has no room left while {action} ({what}).", remedy, sqlstate=sqlstate)
    if sqlstate.startswith(_TRANSIENT_CLASSES) or sqlstate == _READ_ONLY:
        answered = not sqlstate.startswith(_CONNECTION)  # the driver itself names a lost connection so
        text = f"Postgres cannot serve while {action} ({what})."
        return DatabaseUnreachable(text, remedy, sqlstate=sqlstate if answered else "")
    return DatabaseRejected(f"Postgres refused a statement while {action} ({what}).", remedy, sqlstate=sqlstate)


def translate(error: BaseException, action: str) -> MemoryIndexError:
    """Return the `MemoryIndexError` for a driver's error, and clear everything in the original that may quote data."""
    refused = _REFUSED_CLIENTS.get(_alert(error))
    if refused:
        text = f"The database server refused the client certificate: {refused}."
        result: MemoryIndexError = AuthenticationFailed(text, _OF_THE_ROLE)
    elif isinstance(error, asyncpg.PostgresError):
        result = _from_postgres(error, action)
    elif isinstance(error, ssl.SSLCertVerificationError):
        result = _unverified(error)
    else:  # asyncpg's InternalClientError too: a connection that is cut amid an answer confuses it
        result = DatabaseUnreachable(
            f"The database cannot be reached while {action} ({type(error).__name__}).",
            "Check that the server runs, that host and port are right, and that it offers TLS where TLS is demanded.",
        )
    _wipe(error)
    return result


def _alert(error: BaseException) -> str:
    """Return OpenSSL's name of the alert that ended a connection; empty if none did.

    With TLS 1.3 a server refuses a certificate when the handshake has ended for the client, so that the driver only
    sees a connection that is cut, and has the alert as its cause.
    """
    found = error if isinstance(error, ssl.SSLError) else error.__cause__
    return (found.reason or "") if isinstance(found, ssl.SSLError) else ""


def _unverified(error: ssl.SSLCertVerificationError) -> MemoryIndexError:
    """Return the error for a refused certificate. OpenSSL's own text is left out, since it quotes the certificate."""
    cause, remedy = _REFUSED_CERTIFICATES.get(error.verify_code, (f"OpenSSL's code {error.verify_code}", _AUTHORITY))
    return ServerNotVerified(f"The certificate of the database server was refused: {cause}.", remedy)


def refuses_a_row(error: MemoryIndexError) -> bool:
    """Return whether Postgres refused a statement because of one of its rows, so that it may take the others."""
    return isinstance(error, DatabaseRejected) and error.sqlstate.startswith(_OF_A_ROW)


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Convert the driver's errors in the block into `MemoryIndexError`, whose message names the attempted `action`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error, action) from None
