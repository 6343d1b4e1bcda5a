"""Read what pods report in their metrics, and what an external embedder says about its models.

The author of a MemoryIndex chooses these servers. Therefore only few pods are asked, only a bounded part of an answer
is parsed, at a cost that grows linearly with its size, and only short parts of an answer are quoted. The few series
that the operator reads are found by a regular expression, because a general parser of metrics takes quadratic time.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Protocol
from urllib.parse import urlsplit

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.clients.http import Answer, NoAnswerError, NotVerifiedError
from memory_operator.reconcile.authorization.permissions import Permitted, check_external, with_consent
from memory_operator.reconcile.facts import EmbedderLoad, PodFacts, Problem, ReportedModel, WorkerReport
from memory_operator.resources.embedder import PROBE_PORT, embedder_options, embedder_url
from memory_recall.embedding.address_policy import is_beyond_cluster
from memory_recall.embedding.apis import MODELS_PATHS, EmbedderApi, EmbedderOptions, NoListingError

MOST_PODS = 10  # of one MemoryIndex, whose metrics are requested in one observation
AddressesOf = Callable[[str, str], Awaitable[tuple[str, ...] | Problem]]  # of a host that a namespace's object names
_EMBEDDED_WORD = "memory"
_BUSY = 429
_OTHER_API = frozenset({400, 404, 405, 415, 422, 501})  # answers to a request that the server does not understand
_API_REMEDY = "Set spec.embedder.external.api to the API of the server, such as OpenAI for llama-server or vLLM."
_NAME_REMEDY = "Set spec.embedder.external.model to the name that the model has there."
_MODELS_IN_A_MESSAGE = 5
_LONGEST_WORD = 100
_MOST_SAMPLES = 100  # of metrics; the embedder has fewer than ten of these names
_MOST_LAYERS = 10_000  # of a model, more than any has
# Samples of a worker, as Prometheus' text format has them.
_UNAUTHORIZED = b"memory_worker_unauthorized 1.0"
_DISK_FULL = b'memory_worker_waiting{what="disk"} 1.0'
# One sample on a line of its own. A label's value that contains a brace or an escaped character is not read.
_SAMPLE = re.compile(
    r"^memory_embedder_(?P<series>queued_tokens|inflight_tokens|tokens_per_second|device_info|gpu_layers_offloaded"
    r"|model_info|certificate_refused)(?:\{(?P<labels>[^{}\n]{0,400})\})? (?P<value>[0-9.eE+-]{1,30})$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(?P<name>[a-z_]{1,30})="(?P<value>[^"\\]*)"(?:,|$)')


class Send(Protocol):
    """Sends a request to one of the addresses of the URL's host; without any, the URL has an address itself."""

    async def __call__(
        self,
        url: str,
        headers: Mapping[str, str],
        addresses: Sequence[str] = (),
        *,
        body: object = None,
        certificates: str = "",
    ) -> Answer:
        """Return the answer to a GET, or with a body to a POST of it as JSON; or raise NoAnswerError."""
        ...


class EmbedderProbe:
    """Reads the metrics of embedder and worker pods, and the model list of an external embedder."""

    def __init__(self, send: Send, permitted: Permitted, addresses_of: AddressesOf) -> None:
        self._send = send
        self._permitted = permitted
        self._addresses_of = addresses_of

    async def loads(self, pods: Iterable[PodFacts]) -> tuple[EmbedderLoad, ...]:
        """Return the load that each pod reports; a pod that does not answer is left out.

        At most `MOST_PODS` pods are asked, and only those that a Deployment or Job of the MemoryIndex has made.
        """
        found = await asyncio.gather(*(self._load(pod) for pod in _pods_to_probe(pods)))
        return tuple(load for load in found if load is not None)

    async def worker_report(self, pods: Iterable[PodFacts]) -> WorkerReport:
        """Return what any of these pods of workers reports; one that does not answer reports nothing."""
        found = await asyncio.gather(*(self._metrics(pod) for pod in _pods_to_probe(pods)))
        samples = {line for metrics in found for line in metrics.splitlines()}
        return WorkerReport(_UNAUTHORIZED in samples, _DISK_FULL in samples)

    async def external(
        self, index: MemoryIndex, api_key: str | None, certificates: str = "", *, consented: Collection[str] = ()
    ) -> ReportedModel | Problem:
        """Return the specified model as the external embedder describes it, or the problem that prevents its use.

        A third-party embedder in the cluster embeds a word of ours, since its list of models has no dimensions.
        With the API of a hosted provider, nothing is asked: it lists no models, and a word costs money. No request is
        sent either if the embedder may not be called or may not be given the API key. `certificates` are those of an
        authority that verifies the embedder beside the public ones; empty if there is none. `consented` are the hosts
        of other objects' embedders that may be used with their owners' consent.
        """
        permitted, external = with_consent(self._permitted, consented), index.spec.embedder.external
        refused = check_external(index, permitted)
        if refused:
            return Problem(refused.reason, refused.message, refused.remedy or "")
        if external is None:
            return Problem(Reason.NOT_PERMITTED, f"The embedder at {embedder_url(index)} is not asked.")
        options = embedder_options(index)
        path = MODELS_PATHS[options.api]
        if path is None:
            return ReportedModel(f"The embedder at {embedder_url(index)}")
        addresses = await self._addresses_of(index.namespace, external.host)
        if isinstance(addresses, Problem):
            return addresses
        send = partial(self._send, certificates=certificates) if certificates else self._send
        server = _Server(send, index, options, api_key, addresses)
        found = await server.listed(path)
        if isinstance(found, Problem) or _is_ours(options) or is_beyond_cluster(external.url):
            return found
        return await server.embedding_problem() or found

    async def unverified(self, index: MemoryIndex, certificates: str) -> Problem | None:
        """Return why callers cannot verify the embedder that the operator runs; None if they can, or if none answers.

        `certificates` are those of its authority. Whether its pods serve is known from the pods themselves.
        """
        url = embedder_url(index)
        addresses = await self._addresses_of(index.namespace, urlsplit(url).hostname or "")
        if isinstance(addresses, Problem):
            return None
        try:
            await self._send(f"{url}{MODELS_PATHS[EmbedderApi.MEMORY_INDEX]}", {}, addresses, certificates=certificates)
        except NotVerifiedError as error:
            message = f"The embedder at {url} shows a certificate that callers do not accept: {error}."
            remedy = "Put the authority that signs it into ca.crt of the Secret that spec.embedder.tls names."
            return Problem(Reason.EMBEDDER_NOT_VERIFIED, message, remedy)
        except NoAnswerError:
            return None
        return None

    async def _load(self, pod: PodFacts) -> EmbedderLoad | None:
        metrics = await self._metrics(pod)
        try:
            return parse_metrics(pod.name, metrics.decode()) if metrics else None
        except UnicodeDecodeError:
            return None

    async def _metrics(self, pod: PodFacts) -> bytes:
        """Return a pod's metrics, which are empty if it does not answer; embedders and workers serve them alike."""
        host = f"[{pod.ip}]" if pod.ip and ":" in pod.ip else pod.ip
        try:
            answer = await self._send(f"http://{host}:{PROBE_PORT}/metrics", {})
        except NoAnswerError:
            return b""
        return answer.body if answer.code == 200 else b""


def _pods_to_probe(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Return the pods whose metrics are requested: our own that have an address, run on and stay, up to a limit.

    A pod that has ended keeps the address in its status, which another team's pod may have by now.
    """
    return [pod for pod in pods if pod.controlled and pod.ip and not (pod.ended or pod.deleting)][:MOST_PODS]


class _Server:
    """An external embedder that may be asked, at addresses that were looked up."""

    def __init__(
        self, send: Send, index: MemoryIndex, options: EmbedderOptions, api_key: str | None, addresses: Sequence[str]
    ) -> None:
        self._send = send
        self._index = index
        self._options = options
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._addresses = addresses
        self._url = embedder_url(index)

    async def listed(self, path: str) -> ReportedModel | Problem:
        """Return the specified model as the server lists it at `path`; one without a list is assumed to serve it."""
        where = f"The embedder at {self._url}"
        try:
            answer = await self._send(f"{self._url}{path}", self._headers, self._addresses)
        except NoAnswerError as error:
            return _no_answer(where, error)
        if answer.code == 404 and self._options.api is not EmbedderApi.MEMORY_INDEX:
            return ReportedModel(where)
        if answer.code != 200:
            reason = Reason.EMBEDDER_UNAUTHORIZED if answer.code in {401, 403} else Reason.EXTERNAL_UNREACHABLE
            return Problem(reason, f"{where} answers GET {path} with {answer.code}.")
        return served_model(self._index, self._options, answer.body)

    async def embedding_problem(self) -> Problem | None:
        """Return why the server does not embed as specified; None if it does."""
        wanted, where = self._index.spec.embedding, f"The embedder at {self._url}"
        path, body = self._options.request(wanted.model, [_EMBEDDED_WORD], "query")
        try:
            answer = await self._send(f"{self._url}{path}", self._headers, self._addresses, body=body)
        except NoAnswerError as error:
            return _no_answer(where, error)
        if answer.code == _BUSY:
            return None  # other callers keep it so busy that it embeds nothing for the moment, which workers wait for
        if answer.code != 200:
            reason = Reason.EMBEDDER_UNAUTHORIZED if answer.code in {401, 403} else Reason.EXTERNAL_UNREACHABLE
            remedy = _API_REMEDY if answer.code in _OTHER_API else ""
            return Problem(reason, f"{where} answers POST {path} with {answer.code}.", remedy)
        numbers = vector_length(self._options, answer.body)
        if numbers is None:
            return Problem(Reason.EXTERNAL_UNREACHABLE, f"{where} answers POST {path} with no vector.", _API_REMEDY)
        if numbers != wanted.dimensions:
            yields = f"yields {numbers} dimensions, not {wanted.dimensions}"
            return Problem(Reason.DIMENSION_MISMATCH, f"{where} {yields}.")
        return None


def _no_answer(where: str, error: NoAnswerError) -> Problem:
    if isinstance(error, NotVerifiedError):
        message = f"{where} shows a certificate that is not accepted: {error}."
        remedy = "Name the authority that signs it in spec.embedder.external.caSecret, or correct the certificate."
        return Problem(Reason.EMBEDDER_NOT_VERIFIED, message, remedy)
    return Problem(Reason.EXTERNAL_UNREACHABLE, f"{where} does not answer: {error}.")


def served_model(index: MemoryIndex, options: EmbedderOptions, body: bytes) -> ReportedModel | Problem:
    """Return what a server's list of models says of the specified model, or why it must not be used.

    `body` is the list as the server sent it.
    """
    wanted, where = index.spec.embedding, f"The embedder at {embedder_url(index)}"
    try:
        listing = options.listing(json.loads(body), wanted.model)
    except (NoListingError, ValueError, RecursionError):
        return Problem(Reason.EXTERNAL_UNREACHABLE, f"{where} answers with no list of models.", _API_REMEDY)
    if listing.found is None:
        names = ", ".join(name[:_LONGEST_WORD] for name in listing.names[:_MODELS_IN_A_MESSAGE]) or "none"
        message = f"{where} serves {names}, not {options.name_of(wanted.model)}."
        return Problem(Reason.MODEL_MISMATCH, message, "" if _is_ours(options) else _NAME_REMEDY)
    card = listing.found
    dimensions = card.get("dimensions")
    if dimensions is None and _is_ours(options):
        message = f"{where} lists no dimensions of {wanted.model}, so it is no memory-embedder."
        return Problem(Reason.EXTERNAL_UNREACHABLE, message, _API_REMEDY)
    if _is_ours(options) and dimensions != wanted.dimensions:
        yields = f"yields {str(dimensions)[:_LONGEST_WORD]} dimensions"
        return Problem(Reason.DIMENSION_MISMATCH, f"{where} {yields}, not {wanted.dimensions}.")
    if not _is_ours(options):
        return ReportedModel(where)
    return ReportedModel(where, _quoted(card.get("digest")), _quoted(card.get("pooling")))


def vector_length(options: EmbedderOptions, body: bytes) -> int | None:
    """Return the number of dimensions of the first vector in an answer; None if the answer has no vector."""
    try:
        vector = options.in_openai_form(json.loads(body))["data"][0]["embedding"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return len(vector) if isinstance(vector, list) and vector else None


def _is_ours(options: EmbedderOptions) -> bool:
    return options.api is EmbedderApi.MEMORY_INDEX


def _quoted(value: object) -> str | None:
    """Return the beginning of a text from a server, short enough for a condition, or None if the value is no text."""
    return value[:_LONGEST_WORD] if isinstance(value, str) else None


def parse_metrics(pod: str, text: str) -> EmbedderLoad:
    """Parse the metrics that the operator uses. Skip values that are not finite, because they are not measured yet."""
    load = EmbedderLoad(pod)
    for sample in islice(_SAMPLE.finditer(text), _MOST_SAMPLES):
        value = _number(sample["value"])
        if value is not None:
            load = _with_sample(load, sample["series"], _labels(sample["labels"] or ""), value)
    return load


def _with_sample(load: EmbedderLoad, series: str, labels: Mapping[str, str], value: float) -> EmbedderLoad:
    changes: dict[str, Any] = {}
    match series:
        case "queued_tokens" | "inflight_tokens":
            changes["queued_tokens"] = load.queued_tokens + value
        case "tokens_per_second":
            changes["tokens_per_second"] = value
        case "gpu_layers_offloaded":
            changes["gpu_layers_offloaded"] = int(min(value, _MOST_LAYERS))
        case "device_info" if value:
            changes["device"] = labels.get("device")
        case "certificate_refused" if value:
            changes["certificate_fault"] = labels.get("fault")
        case "model_info" if value:
            digest, pooling = _quoted(labels.get("digest")), _quoted(labels.get("pooling"))
            changes["model"] = ReportedModel(f"Pod {load.pod}", digest, pooling)
    return replace(load, **changes)


def _number(text: str) -> float | None:
    """Return the number that the text is; None if it is no number, or a negative or infinite one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _labels(text: str) -> dict[str, str]:
    """Parse the labels of a sample up to the first one that has another form."""
    found: dict[str, str] = {}
    position = 0
    while label := _LABEL.match(text, position):
        found[label["name"]] = label["value"]
        position = label.end()
    return found
