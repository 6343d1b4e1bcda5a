"""The HTTP client of a language model behind an OpenAI-compatible address: `POST /v1/chat/completions`.

A request holds the model's name, an instruction, examples that belong to nobody, and one text; nothing else. The text
is a query, or holds memories. The address must belong to this machine, a private network or a Service of the cluster,
or texts must be allowed to leave and the address must have TLS. A redirect is not followed, since it could lead
elsewhere. An answer is read up to a fixed size and refused beyond (see `bounded_answer`).

A failed request is not repeated here, because a recall has no time for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from memory_recall.embedding.address_policy import check_egress, is_beyond_cluster
from memory_recall.embedding.api_key import ApiKey, BearerKey
from memory_recall.embedding.bounded_answer import Answer, BeforeSending, Bounds, Request, UnusableAnswerError
from memory_recall.embedding.http_client import HttpClient, direct_transport
from memory_recall.embedding.whole_text import whole
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    MemoryIndexError,
)

_PATH = "/v1/chat/completions"
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8)
_BOUNDS = Bounds(size=65_536, values=16_384)  # of an answer
_TOKENS = 20  # of which OpenAI's interface says how likely they were
_TRANSIENT = frozenset({408, 425, 429})

T = TypeVar("T")


class ChatClient(HttpClient):
    """Asynchronous client of a language model; safe for concurrent use. It must be closed.

    `base_url` is the address without `/v1`. `api_key` is the key or the path of a file that holds it, read anew for
    each request. `query_egress` says whether texts of queries and memories may be sent out of the cluster, to an
    address with TLS.

    Raises:
        InvalidConfiguration: texts may not be sent to the address.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: ApiKey | None = None,
        *,
        query_egress: bool = False,
    ) -> None:
        check_egress(base_url, "language model", egress=query_egress, hosted=False)
        auth = BearerKey(api_key) if api_key else None
        super().__init__(
            httpx.AsyncClient(
                base_url=base_url.rstrip("/"),
                auth=auth,
                timeout=_TIMEOUT,
                limits=_LIMITS,
                transport=direct_transport(base_url, True, _LIMITS),  # noqa: FBT003 -- verified as httpx does
                trust_env=is_beyond_cluster(base_url),
            )
        )
        self.model = model

    async def complete(self, instruction: str, text: str, *, most_tokens: int) -> str:
        """Return the model's answer of at most `most_tokens` tokens to a text, under an instruction.

        The caller makes sure that the text is not sensitive.

        Raises:
            EmbedderUnauthorized: the API key is refused, or its file is missing or empty.
            EmbedderRejected: the request is refused, because of the model's name for instance.
            EmbedderUnavailable: there is no answer, or a server error.
            EmbedderBroken: the answer is too long, or has no text where the answer of a chat has it.
        """
        messages = [_turn("system", instruction), _turn("user", text)]
        return await self._complete(messages, {"max_tokens": most_tokens}, _content)

    async def first_token(
        self,
        instruction: str,
        examples: Sequence[tuple[str, str]],
        text: str,
        *,
        before_sending: BeforeSending | None = None,
    ) -> Mapping[str, float]:
        """Return the likeliest first tokens of the model's answer to a text, and how likely each is (0 to 1).

        `examples` are texts with the answers that they should get. The caller makes sure that the text is not
        sensitive: `before_sending` is awaited once there is a connection, before anything is written to it but the
        headers, and what it raises is raised.

        Raises:
            EmbedderUnauthorized: the API key is refused, or its file is missing or empty.
            EmbedderRejected: the request is refused, because of the model's name for instance.
            EmbedderUnavailable: there is no answer, or a server error.
            EmbedderBroken: the answer is too long, or does not say how likely its tokens are.
        """
        messages = [_turn("system", instruction)]
        for asked, answered in examples:
            messages += [_turn("user", asked), _turn("assistant", answered)]
        messages.append(_turn("user", text))
        wanted = {"max_tokens": 1, "logprobs": True, "top_logprobs": _TOKENS}
        return await self._complete(messages, wanted, _first_token, before_sending)

    async def _complete(
        self,
        messages: Sequence[Mapping[str, str]],
        wanted: Mapping[str, Any],
        read: Callable[[Any], T],
        before_sending: BeforeSending | None = None,
    ) -> T:
        body = {"model": self.model, "messages": messages, "temperature": 0, **wanted}
        request = Request("POST", _PATH, _BOUNDS, _TIMEOUT, body, before_sending)

        def read_answer(answer: Answer) -> T:
            if answer.status != 200:
                raise _refusal(answer)
            return read(answer.json())

        try:
            return await self._exchange(self._http, request, read_answer)
        except UnusableAnswerError as error:
            raise _broken(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise EmbedderUnavailable(
                f"The language model could not be reached ({type(error).__name__}).",
                "Check its address, and that a NetworkPolicy lets this pod reach it.",
            ) from None


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": whole(content)}


def _content(payload: Any) -> str:  # noqa: ANN401  (whatever the server sent)
    try:
        content = payload["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise _broken("it is not that of a chat") from None
    if not isinstance(content, str):
        raise _broken("its content is no text")
    return content


def _first_token(payload: Any) -> dict[str, float]:  # noqa: ANN401  (the same)
    found: dict[str, float] = {}
    try:
        for one in payload["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            token, logarithm = str(one["token"]), float(one["logprob"])
            if math.isnan(logarithm):
                raise _broken("a token has no number that says how likely it is")
            found[token] = found.get(token, 0.0) + math.exp(min(logarithm, 0.0))
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):
        raise _broken("it does not say how likely its tokens are, as llama-server and vLLM do if asked") from None
    return found


def _broken(what: str) -> EmbedderBroken:
    return EmbedderBroken(
        f"The answer of the language model is unusable: {what}.",
        "Check that its address is an OpenAI-compatible one, without /v1 at its end.",
    )


def _refusal(answer: Answer) -> MemoryIndexError:
    status = answer.status
    where = f"The language model's server answered {status}."
    if status >= 500 or status in _TRANSIENT:
        remedy = "Repeat the request later, and read the server's log if this lasts."
        return EmbedderUnavailable(where, remedy, retry_after=answer.retry_after)
    if status in {401, 403}:
        return EmbedderUnauthorized(where, "Give the API key of the language model.")
    return EmbedderRejected(where, "Check the address, which is given without /v1, and the model's name.")
