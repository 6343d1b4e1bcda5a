"""Parses a connection string, and refuses what the driver must not be given.

The driver reads parameters that name files, services and plugins, and it takes what a connection string leaves out from
variables and from files in the user's home. Whoever may write a connection string could thus have any file of this
machine opened. Therefore a connection string is parsed here, into a closed list of parameters, and the driver gets each
of its arguments by name. All faults are named together, with a remedy each. No message repeats a value, or a name that
Postgres does not know: either may be the rest of a password that should have been percent-encoded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import unquote

from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.tls import TlsMode

FORM = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
LONGEST = 8192  # characters; a token of a cloud provider that stands for a password takes some 2,000
MOST_SERVERS = 8
DEFAULT_PORT = 5432
_SCHEMES = frozenset({"postgres", "postgresql"})
_SESSIONS = frozenset({"any", "read-write", "read-only", "primary", "standby", "prefer-standby"})
_MODES = {"allow": TlsMode.PREFER, **{mode.value: mode for mode in TlsMode}}
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # and halves of a character
_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?")
_NO_ENCODING = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PERCENT = "Write each of the characters :/?#[]@% of a user, a password and a database percent-encoded, as %40 for @."

# What can be in a connection string that other programs use, too, and changes neither what is reached nor who may read
# along. Sessions are named after their work, and their time limits and keep-alives are our own.
WITHOUT_EFFECT = frozenset(
    {
        "application_name",
        "connect_timeout",
        "fallback_application_name",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "load_balance_hosts",
        "sslcompression",
        "sslsni",
        "tcp_user_timeout",
    }
)
# Of other clients, such as Prisma and node-postgres: sizes of pools and caches, which providers put into what they
# offer for copying. A pooler is found out by itself.
OF_OTHER_CLIENTS = frozenset(
    {
        "connection_limit",
        "pgbouncer",
        "pool_timeout",
        "prepared_statement_cache_size",
        "prepareThreshold",
        "socket_timeout",
        "statement_cache_size",
        "supa",
        "uselibpqcompat",
    }
)
_ACCEPTED = WITHOUT_EFFECT | OF_OTHER_CLIENTS
_TAKEN = frozenset({"dbname", "host", "password", "port", "sslmode", "target_session_attrs", "user"})
_ONLY = {  # parameters of which some values ask for nothing that we lack
    "channel_binding": frozenset({"disable", "prefer", "require"}),
    "client_encoding": frozenset({"auto", "utf8", "UTF8"}),
    "gssencmode": frozenset({"disable", "prefer"}),
    "sslnegotiation": frozenset({"postgres"}),
    "sslrootcert": frozenset({"system"}),
}
_OTHERS = "Take it out."
_CLIENT = (
    "Take it out, and put the certificate as tls.crt and the key, without a password, as tls.key into the Secret that "
    "spec.database.credentials.clientCertificate names (outside of Kubernetes, into the folder that "
    "MEMORY_DATABASE_CERTIFICATE_FOLDER names)."
)
_REVOKED = "Take it out: lists of revoked certificates are not supported."
_REFUSED = {
    "channel_binding": "Use require, prefer or disable.",
    "sslrootcert": "Take it out, and put the certificates of the certificate authority into the Secret that "
    "spec.database.tls.caSecret names (outside of Kubernetes, into the file that MEMORY_DATABASE_CA_FILE names).",
    "options": "Take it out, and set what it sets for the role: ALTER ROLE ... SET. An endpoint or a project of Neon "
    "need not be named: the server is told the name of the host.",
    **dict.fromkeys(("schema", "currentSchema"), "Take it out, and write the schema before the table: SCHEMA.TABLE."),
    **dict.fromkeys(("ssl", "sslaccept"), "Write sslmode=require instead, or verify-full to refuse an impostor."),
    "passfile": "Take it out, and write the password into the connection string.",
    "service": "Take it out, and write what the service stands for into the connection string.",
    "servicefile": "Take it out, and write what the service stands for into the connection string.",
    "hostaddr": "Take it out, and write the address in place of the host.",
    **dict.fromkeys(("sslcert", "sslidentity", "sslkey", "sslpassword"), _CLIENT),
    "sslcertmode": "Take it out: a client certificate is shown where one is configured.",
    **dict.fromkeys(("sslcrl", "sslcrldir"), _REVOKED),
    **dict.fromkeys(
        (
            "client_encoding", "gssdelegation", "gssencmode", "gsslib", "krbsrvname", "max_protocol_version",
            "min_protocol_version", "oauth_client_id", "oauth_client_secret", "oauth_issuer", "oauth_scope",
            "replication", "require_auth", "requirepeer", "requiressl", "scram_client_key", "scram_server_key",
            "ssl_max_protocol_version", "ssl_min_protocol_version", "sslkeylogfile", "sslnegotiation",
        ),
        _OTHERS,
    ),
}  # fmt: skip


class Server(NamedTuple):
    """A host, which is a name, an IP address or the folder of a Unix socket, and a port."""

    host: str
    port: int

    @property
    def is_socket(self) -> bool:
        """Whether this is a Unix socket of this machine."""
        return self.host.startswith("/")


@dataclass(frozen=True)
class ConnectionUri:
    """The parts of a connection string.

    Attributes:
        mode: the least TLS that the connection string demands; None if it says nothing about TLS.
        session: which of several servers will do, such as `any` or `read-write`.
    """

    servers: tuple[Server, ...]
    user: str
    password: str = field(repr=False)
    database: str
    mode: TlsMode | None = None
    session: str = "any"


class _Faults(list[tuple[str, str]]):
    """What is wrong with a connection string, each with its remedy."""

    def add(self, fault: str, remedy: str) -> None:
        """Add a fault, unless it is there."""
        if (fault, remedy) not in self:
            self.append((fault, remedy))

    def decoded(self, text: str) -> str:
        """Return a part of the connection string without percent-encoding."""
        try:
            found = unquote(text, errors="strict")
        except UnicodeDecodeError:
            found = "\0"
        if _NO_ENCODING.search(text) or _CONTROL.search(found):
            self.add("a percent-encoding in it is malformed or stands for a control character", _PERCENT)
        return found

    @property
    def error(self) -> InvalidConfiguration:
        """All faults as one error."""
        remedies = dict.fromkeys(remedy for _, remedy in self)
        faults = "; ".join(fault for fault, _ in self)
        return InvalidConfiguration(f"The connection string cannot be used: {faults}.", " ".join(remedies))


def parse(text: str) -> ConnectionUri:
    """Parse a connection string of the form `postgresql://USER:PASSWORD@HOST:5432/DATABASE?PARAMETER=VALUE`.

    The scheme may name a driver as SQLAlchemy writes it, as in `postgresql+asyncpg://`.

    Raises:
        InvalidConfiguration: the text is no such connection string, or has parameters that are not supported.
    """
    scheme, separator, rest = text.strip().partition("://")
    faults = _Faults()
    if not separator or scheme.partition("+")[0] not in _SCHEMES:
        faults.add("it is not a postgresql:// URI", f"Use {FORM}.")
        raise faults.error
    if len(rest) > LONGEST or _CONTROL.search(rest):
        faults.add(f"it has more than {LONGEST} characters, or control characters", f"Use {FORM}.")
        raise faults.error
    place, _, query = rest.partition("?")
    authority, _, path = place.partition("/")
    if "#" in rest or rest.count("@") > 1 or "@" in path or "@" in query or "/" in path:
        faults.add("a character in it has two meanings", _PERCENT)
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    given = _parameters(query, faults)
    _check_parameters(given, faults)
    found = ConnectionUri(
        servers=_servers(hosts, given, faults),
        user=_once("user", faults.decoded(user), given, faults, needed=True),
        password=_once("password", faults.decoded(password), given, faults),
        database=_once("dbname", faults.decoded(path), given, faults, needed=True),
        mode=_mode(given, faults),
        session=given.get("target_session_attrs", "any"),
    )
    if found.session not in _SESSIONS:
        faults.add("target_session_attrs has a value that is not supported", f"Use {', '.join(sorted(_SESSIONS))}.")
    if faults:
        raise faults.error
    return found


def _parameters(query: str, faults: _Faults) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        name = faults.decoded(name)
        if not equals or not name:
            faults.add("a parameter in it has no name or no value", "Write each parameter as NAME=VALUE.")
        elif name in found and name in {*_TAKEN, *_REFUSED, *_ACCEPTED}:
            faults.add(f"it has the parameter {name} twice", "Write each parameter once.")
        found[name] = faults.decoded(value)
    return found


def _check_parameters(given: Mapping[str, str], faults: _Faults) -> None:
    unknown = 0
    for name, value in given.items():
        if name in _TAKEN or name in _ACCEPTED or value in _ONLY.get(name, ()):
            continue
        if name in _REFUSED:
            shown = " with this value" if name in _ONLY else ""
            faults.add(f"its parameter {name} is not supported{shown}", f"{name}: {_REFUSED[name]}")
        elif name:
            unknown += 1
    if unknown:
        faults.add(
            f"it has parameters that Postgres does not know ({unknown})",
            f"Take out the parameters that libpq's documentation does not list. {_PERCENT}",
        )


def _once(name: str, written: str, given: Mapping[str, str], faults: _Faults, *, needed: bool = False) -> str:
    """Return what stands at its place in the connection string or, if that is empty, in the parameter `name`."""
    if written and name in given:
        faults.add(f"it says {name} twice", "Write it at its place, or as a parameter.")
    found = written or given.get(name, "")
    if needed and not found:
        faults.add(f"it names no {'database' if name == 'dbname' else name}", f"Use {FORM}.")
    return found


def _mode(given: Mapping[str, str], faults: _Faults) -> TlsMode | None:
    written = given.get("sslmode")
    if written is not None and written not in _MODES:
        faults.add("sslmode has a value that is not supported", f"Use {', '.join(_MODES)}.")
    if given.get("channel_binding") == "require":  # the driver has none; this refuses an impostor, too
        return TlsMode.VERIFY_FULL
    if given.get("sslrootcert") == "system":  # as in libpq, which trusts the public authorities with full names only
        return TlsMode.VERIFY_FULL
    return _MODES.get(written) if written is not None else None


def _servers(hosts: str, given: Mapping[str, str], faults: _Faults) -> tuple[Server, ...]:
    listed = given.get("host", "").split(",") if "host" in given else []
    pairs = [_host_and_port(part, faults) for part in hosts.split(",")] if hosts else [(host, "") for host in listed]
    if hosts and listed:
        faults.add("it says host twice", "Write it at its place, or as a parameter.")
    if not pairs:
        faults.add("it names no host", f"Use {FORM}.")
    ports = given["port"].split(",") if "port" in given else []
    if len(ports) not in {0, 1, len(pairs)} or (ports and any(port for _, port in pairs)):
        faults.add("its ports do not fit its hosts", "Write each port behind its host.")
        return ()
    ports = ports * len(pairs) if len(ports) == 1 else ports or [""] * len(pairs)
    if len(pairs) > MOST_SERVERS:
        faults.add(f"it names more than {MOST_SERVERS} hosts", "Name fewer hosts.")
    return tuple(
        Server(_host(host, faults), _port(port or other, faults))
        for (host, port), other in zip(pairs, ports, strict=True)
    )


def _host_and_port(text: str, faults: _Faults) -> tuple[str, str]:
    host, _, port = text.partition(":")
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            host = ""
        port = port.removeprefix(":")
    return faults.decoded(host), faults.decoded(port)


def _host(text: str, faults: _Faults) -> str:
    try:
        known = bool(text.startswith("/") or _NAME.fullmatch(text) or IPv6Address(text))
    except ValueError:
        known = False
    if not known:
        faults.add("a host in it is neither a name nor an address", f"Use {FORM}.")
    return text


def _port(text: str, faults: _Faults) -> int:
    if not text:
        return DEFAULT_PORT
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        faults.add("a port in it is no number from 1 to 65535", f"Use {FORM}.")
        return DEFAULT_PORT
    return int(text)
