"""Settings of `memory-embedder serve`.

They are command-line options alone. Bounds that no deployment has had to change are constants in `Limits`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from memory_embedder.errors import configuration_error
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.model_file import DIGEST_PATTERN
from memory_embedder.models.profiles import (
    DEFAULT_MODEL,
    PROFILES,
    RERANKERS,
    ModelProfile,
    Pooling,
    find_profile,
    known_as,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the service, in tokens, texts, bytes and seconds; tests set lower ones."""

    queued_query_tokens: int = 32_768
    query_request_tokens: int = 8_192  # of one request, so that none fills the lane of the others' queries
    queued_document_tokens: int = 300_000  # what OpenAI's clients put into one request at most
    queued_rerank_tokens: int = 65_536
    rerank_request_tokens: int = 32_768  # of one request, pairs of the query and each text
    cached_queries: int = 4096  # of callers with an API key
    query_streak: int = 8  # query batches in a row after which a waiting document batch is computed
    body_bytes: int = 8 << 20  # of one request
    large_bytes: int = 64 << 20  # of all large bodies, and their answers, that are in memory
    body_seconds: float = 30.0  # within which a body must arrive
    tuning_seconds: float = 2.0  # within which trials at start begin; 0 = none
    drain_seconds: float = 50.0  # for admitted requests after SIGTERM
    hang_seconds: float = 120.0  # of one batch, after which liveness fails


class EmbedderSettings(BaseModel):
    """Settings of the service; each is a command-line option."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str | None = Field(
        default=None,
        min_length=1,
        description="A known model (`memory-embedder models`), or any other name together with --model-file. Clients "
        "use this name. Default: the known model that the file says it is, else the file's name; without a file, "
        f"{DEFAULT_MODEL}.",
    )
    alias: list[str] | None = Field(
        default=None, max_length=16, description="Repeatable: a further name that clients may use for the model."
    )
    model_file: Path | None = Field(default=None, description="The GGUF file; default: /models/<model>.gguf.")
    digest: str | None = Field(
        default=None, pattern=DIGEST_PATTERN, description="sha256:<hex> that the file must have."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        description="Number of dimensions that the model must yield. Vectors of a known model that was trained for it "
        "(Matryoshka: nomic-embed-text-v1.5, Qwen3-Embedding-0.6B) are cut to it.",
    )
    pooling: Pooling | None = Field(
        default=None, description="How token states become one vector; default: as the known model, or the file, says."
    )
    max_tokens: int | None = Field(
        default=None, ge=3, description="The longest text in tokens; default: the known model's window, or the file's."
    )
    query_prefix: str | None = Field(default=None, description="Text put before queries; default: the known model's.")
    document_prefix: str | None = Field(
        default=None, description="Text put before documents; default: the known model's."
    )

    reranker: str | None = Field(
        default=None,
        min_length=1,
        description="Serve a reranker beside the model: a known one (`memory-embedder models`), or any other name "
        "together with --reranker-max-tokens. Clients use this name. Default: none.",
    )
    reranker_file: Path | None = Field(
        default=None, description="The reranker's GGUF file; default: /models/<reranker>.gguf."
    )
    reranker_digest: str | None = Field(
        default=None, pattern=DIGEST_PATTERN, description="sha256:<hex> that the reranker's file must have."
    )
    reranker_max_tokens: int | None = Field(
        default=None, ge=16, description="The longest pair of query and text in tokens; default: the known reranker's."
    )

    gpu_layers: int = Field(
        default=0, ge=-1, description="Layers to compute on the GPU: -1 = all, 0 = none (a CPU on purpose)."
    )
    allow_cpu: bool = Field(default=False, description="Serve on the CPU where the GPU asked for is absent.")
    gpu_memory_limit: int | None = Field(
        default=None,
        ge=1,
        description="Have fewer contexts, or refuse a model that needs more MiB of the GPU; default: what is free.",
    )
    contexts: int = Field(default=0, ge=0, description="Contexts that compute documents; 0 = measured at start.")
    batch_tokens: int = Field(default=0, ge=0, description="Tokens of a batch; 0 = measured at start.")

    host: str = Field(
        default="::",
        description="Address to listen on; :: is every address of the machine, of IPv6 and of IPv4.",
    )
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the interface for callers.")
    probe_port: int = Field(
        default=9090, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics, for kubelet and Prometheus."
    )
    shutdown_delay_seconds: float = Field(
        default=0.0, ge=0, le=120, description="Seconds after SIGTERM in which requests are still accepted."
    )
    api_key_file: Path | None = Field(
        default=None,
        description="Require a key of this file, which has one a line, from callers; default: no key is required.",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Serve HTTPS on --port with the certificate of this file, in PEM form with its intermediates. The "
        "file is read again when it changes. Default: plain HTTP.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="The private key of --tls-certificate-file, in PEM form and not encrypted."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="Send traces (times and sizes, no text) to this OTLP/HTTP address; default: no traces.",
    )

    def profile(self) -> ModelProfile:
        """Return the profile of the configured model.

        The profile of a known model is changed by the facts that the settings give. An unknown model's profile consists
        of the settings and, where they lack a fact, of what the file states; its header is read then, once, after its
        digest has been compared.

        Raises:
            EmbedderError: the model is unknown and there is no file, the file has another digest, cannot be read or
                does not state its pooling, vectors of the known model may not be cut to `dimensions`, or `pooling` is
                that of a reranker.
        """
        known = self._described
        if self.pooling is Pooling.RANK:
            raise configuration_error(
                "--pooling rank is that of a reranker, which yields no vectors; name its file by --reranker-file, "
                "beside a model that embeds.",
            )
        return replace(
            known if self.dimensions is None else known.cut_to(self.dimensions),
            max_tokens=self.max_tokens or known.max_tokens,
            pooling=self.pooling or known.pooling,
            query_prefix=known.query_prefix if self.query_prefix is None else self.query_prefix,
            document_prefix=known.document_prefix if self.document_prefix is None else self.document_prefix,
        )

    def has_unknown_prefixes(self) -> bool:
        """Return whether the model has no known profile and the settings do not say its prefixes, not even as empty."""
        return self.profile().name not in PROFILES and self.query_prefix is None and self.document_prefix is None

    def tls_files(self) -> tuple[Path, Path] | None:
        """Return the files of certificate and key by which HTTPS is served; None for plain HTTP.

        Raises:
            EmbedderError: only one of them is set.
        """
        certificate, key = self.tls_certificate_file, self.tls_key_file
        if certificate and key:
            return certificate, key
        if certificate or key:
            raise configuration_error(
                "--tls-certificate-file and --tls-key-file need each other: name both for HTTPS, or none.",
            )
        return None

    def file(self) -> Path:
        """Return the path of the model file."""
        return self.model_file or Path("/models") / f"{self.model or DEFAULT_MODEL}.gguf"

    def reranker_profile(self) -> ModelProfile | None:
        """Return the profile of the configured reranker, or None if none is configured.

        Raises:
            EmbedderError: the reranker is unknown and the settings do not say how long a pair may be, or it has
                settings but no name.
        """
        if self.reranker is None:
            given = [name for name in sorted(self.model_fields_set) if name.startswith("reranker_")]
            if given:
                raise configuration_error(
                    f"--{given[0].replace('_', '-')} has no effect without --reranker; name the reranker, too.",
                )
            return None
        known = RERANKERS.get(self.reranker)
        if known is not None:
            return replace(known, max_tokens=self.reranker_max_tokens or known.max_tokens)
        if self.reranker_max_tokens is None:
            raise configuration_error(
                f"No profile is known for the reranker '{self.reranker}'. Known: {', '.join(sorted(RERANKERS))}. "
                "Any other one is served with --reranker-file and --reranker-max-tokens.",
            )
        return ModelProfile(self.reranker, 1, self.reranker_max_tokens, Pooling.RANK)

    @cached_property  # to compare a digest takes as long as reading the file
    def _described(self) -> ModelProfile:
        if self.model_file is None or self.model in PROFILES:
            return find_profile(self.model or DEFAULT_MODEL)
        if self.model and self.dimensions and self.pooling and self.max_tokens:
            return ModelProfile(self.model, self.dimensions, self.max_tokens, self.pooling)
        facts = read_facts(self.model_file, self.digest)
        known = known_as(facts.name) if self.model is None and facts.name else None
        if known is not None:
            return known
        pooling = self.pooling or facts.pooling
        if pooling is None:
            raise configuration_error(
                f"{self.model_file} does not say how the states of its tokens become one vector; say it with --pooling "
                "(mean, cls or last), as its publisher does.",
            )
        name = self.model or self.model_file.stem
        return ModelProfile(name, facts.dimensions, self.max_tokens or facts.context_length, pooling)
