"""Settings of the `memory` processes, from the environment.

One class serves every command, because all commands use the same database and embedder, and a Job of the operator sets
the same variables whichever command it runs.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.errors import InvalidConfiguration
from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.postgres.connection import DsnFile, DsnSource, DsnText
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.postgres.tls import DatabaseTls, TlsMode
from memory_recall.schema.columns.names import ColumnNames

_LONGEST_NAME = 63  # bytes; Postgres cuts longer names


def _require_table_name(name: str) -> str:
    """Return the name of a table, with or without its schema.

    Raises:
        ValueError: Postgres would cut the name off, or it holds a character that our names of tables cannot hold.
    """
    parts = name.split(".")
    usable = all(part.isprintable() and 0 < len(part.encode()) <= _LONGEST_NAME for part in parts)
    if len(parts) > 2 or not usable or '"' in name:
        raise ValueError("must be TABLE or SCHEMA.TABLE, without quotes, each of at most 63 bytes and without a dot")
    return name


TableName = Annotated[str, AfterValidator(_require_table_name)]

LOCK_SECONDS = 600.0  # for which migrations, index builds and swaps try to get a lock
_PACKAGE = Path(__file__).resolve().parent
_INSTALLED_MIGRATIONS, _CHECKOUT_MIGRATIONS = _PACKAGE / "migrations", _PACKAGE.parents[1] / "migrations"
MIGRATIONS = _INSTALLED_MIGRATIONS if (_INSTALLED_MIGRATIONS / "env.py").is_file() else _CHECKOUT_MIGRATIONS


class DatabaseSettings(BaseModel):
    """The connection string of the database, or the file that holds it, and the certificates of both sides."""

    url: SecretStr | None = Field(default=None, description="Connection string, postgresql://USER:PASSWORD@HOST/NAME.")
    url_file: Path | None = Field(
        default=None, description="File that holds the connection string, read anew at each connect; wins over the URL."
    )
    tls_mode: Literal["require", "verify-ca", "verify-full"] | None = Field(
        default=None,
        description="Least TLS of a connection, named as libpq's sslmode; what the connection string demands beyond "
        "counts, too. With a CA file verify-full by default, else what the connection string says.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="File with the certificates of the authority that signs the database server's certificate, in PEM "
        "form, read anew at each connect.",
    )
    certificate_folder: Path | None = Field(
        default=None,
        description="Folder with the role's client certificate, tls.crt, and its key without a password, tls.key, such "
        "as a mounted Secret, where the server demands one; read anew at each connect.",
    )
    identity: str | None = Field(
        default=None,
        description="The only database that is worked in, SYSTEM_IDENTIFIER/NAME; in any other no statement is run.",
    )


class EmbedderSettings(BaseModel):
    """The embedder's address and API, the file with its API key, and the hosts of other embedders that may be used."""

    url: str | None = Field(default=None, description="Address of the embedder, http://HOST:8080.")
    api: EmbedderApi = Field(
        default=EmbedderApi.MEMORY_INDEX,
        description="API of the embedder; OpenAI also for llama-server, vLLM, infinity, Ollama and LiteLLM.",
    )
    served_as: str | None = Field(default=None, description="Name of the model at the embedder, if it is another one.")
    query_prefix: str | None = Field(
        default=None,
        description="What is put before a query, with the API OpenAI or TEI; by default as the model's profile says.",
    )
    document_prefix: str | None = Field(
        default=None,
        description="What is put before a memory, with the API OpenAI or TEI; by default as the model's profile says.",
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File that holds the API key of the embedder, read anew for each request.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="File, or folder of files, with certificates of authorities of your own that sign those of "
        "embedders, read anew for each connection.",
    )
    trusted_hosts: str = Field(
        default="",
        description="Hosts, separated by commas, that the database may name as embedders; they get the API key, too.",
    )


class IndexSettings(BaseModel):
    """Parameters of the HNSW index."""

    m: int = Field(default=DEFAULT_M, ge=2, le=100, description="Neighbours of a vector in the HNSW graph.")
    ef_construction: int = Field(
        default=DEFAULT_EF_CONSTRUCTION, ge=4, le=1000, description="Candidates for these neighbours during the build."
    )


class BackfillSettings(BaseModel):
    """How workers embed rows: batch size, attempts at a failing row, and how many processes share a backfill."""

    batch_size: int = Field(default=32, ge=1, le=2048, description="Rows of one request at most.")
    max_attempts: int = Field(default=5, ge=1, description="Attempts after which a failing row is quarantined.")
    partitions: int = Field(default=1, ge=1, description="Processes that share a backfill: the Job's completions.")
    rows_per_second: float | None = Field(default=None, gt=0, description="Ceiling of rows a second; none by default.")


class LogSettings(BaseModel):
    """Settings of the log on standard error."""

    format: Literal["json", "console"] = Field(
        default="console", description="JSON for a cluster, console for a person."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged; libraries log warnings and errors alone."
    )


class Settings(BaseSettings):
    """All settings of the `memory` processes.

    Each setting is read from the variable MEMORY_ followed by the setting's path: `database.url_file` from
    MEMORY_DATABASE_URL_FILE. Only `partition` is read from JOB_COMPLETION_INDEX.
    """

    model_config = SettingsConfigDict(
        env_prefix="MEMORY_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="ignore",
        hide_input_in_errors=True,
    )

    database: DatabaseSettings = DatabaseSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    index: IndexSettings = IndexSettings()
    backfill: BackfillSettings = BackfillSettings()
    log: LogSettings = LogSettings()
    table: TableName = Field(default="memories", description="Table of memories, with or without its schema.")
    columns: dict[str, str | list[str]] | None = Field(
        default=None,
        description="Names of the table's columns for memory migrate, adopt and status, as JSON by our names: "
        """{"id": "uuid", "content": "payload->>'data'", "tags": ""}. An empty text says that there is none. """
        "They are recorded by the first migration; everything else reads them from there.",
    )
    sensitivity: Literal["column", "none"] = Field(
        default="column", description="Whether a column says which rows are sensitive, or no row of the table is."
    )
    text_search_configuration: Annotated[str, StringConstraints(max_length=127)] | None = Field(
        default=None,
        description="Language of words for memory migrate, such as german, where the definition of the table's search "
        "column names none, and for a search column of ours; simple by default. It is recorded as the names are.",
    )
    model: str = Field(default="all-MiniLM-L6-v2", description="Model of the embedder.")
    dimensions: int | None = Field(
        default=None, ge=1, le=4000, description="Dimensions of the vectors; those of the model's profile by default."
    )
    query_egress: Literal["denied", "allowed"] = Field(
        default="denied", description="Whether texts of memories and queries may be sent beyond the cluster."
    )
    metrics_port: int = Field(default=0, ge=0, le=65535, description="Port of the workers' metrics; 0 serves none.")
    partition: int = Field(
        default=0,
        ge=0,
        validation_alias="JOB_COMPLETION_INDEX",
        description="This process's share of a backfill, from 0; Kubernetes sets it.",
    )

    @property
    def embedder_options(self) -> EmbedderOptions:
        """The API of the configured embedder, and what requests to it need."""
        asked = self.embedder
        return EmbedderOptions(
            asked.api, asked.served_as, asked.query_prefix, asked.document_prefix, self.backfill.batch_size
        )

    @property
    def may_leave_cluster(self) -> bool:
        """Whether texts of memories and queries may be sent beyond the cluster."""
        return self.query_egress == "allowed"

    @property
    def has_embedder(self) -> bool:
        """Whether an embedder is configured, so that queries can be embedded."""
        return bool(self.embedder.url)

    def column_names(self) -> ColumnNames | None:
        """Return the names of the table's columns that are configured, or None if nothing is.

        Raises:
            InvalidConfiguration: a name cannot be used.
        """
        if self.columns is None and self.sensitivity == "column" and self.text_search_configuration is None:
            return None
        return ColumnNames.parse(
            self.columns or {},
            all_public=self.sensitivity == "none",
            text_search_configuration=self.text_search_configuration,
        )

    def trusted_hosts(self) -> tuple[str, ...]:
        """Return the hosts that the database may name as an embedder's address, and to which texts may then be sent."""
        return tuple(host.strip() for host in self.embedder.trusted_hosts.split(",") if host.strip())

    def dsn(self) -> DsnSource:
        """Return the source of the connection string: a file, which is read anew at every connect, or a fixed text.

        Raises:
            InvalidConfiguration: neither MEMORY_DATABASE_URL_FILE nor MEMORY_DATABASE_URL is set, or
                MEMORY_DATABASE_IDENTITY is malformed.
        """
        identity = DatabaseIdentity.parse(self.database.identity) if self.database.identity else None
        mode = TlsMode(self.database.tls_mode) if self.database.tls_mode else None
        folder = self.database.certificate_folder
        client = ClientCertificate(folder / "tls.crt", folder / "tls.key") if folder else None
        tls = DatabaseTls(mode, self.database.ca_file, client)
        if self.database.url_file is not None:
            return DsnFile(self.database.url_file, identity, tls)
        if self.database.url is not None:
            return DsnText(self.database.url.get_secret_value(), identity, tls)
        raise InvalidConfiguration(
            "No database is configured.", "Set MEMORY_DATABASE_URL_FILE to a file that holds the connection string."
        )
