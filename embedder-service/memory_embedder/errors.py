"""All kinds of error of this service, in one closed table.

Other modules raise `EmbedderError` with a kind. The table gives each kind its HTTP status and the type and code of
OpenAI's error format; nothing else in the package chooses a status. Messages are written where the error is raised and
never contain a caller's text. They may quote a model file, so each is cut and loses what a terminal would obey.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_MOST_NAMED = 10  # texts in a message
_LONGEST_MESSAGE = 1000  # characters; Kubernetes keeps 4096 bytes of a termination message
_OMISSION = " ... "
_SHOWN_INSTEAD = "\N{REPLACEMENT CHARACTER}"


class ErrorKind(Enum):
    """Every failure that the service reports, each with its HTTP status, OpenAI error type and error code."""

    MALFORMED_HTTP = (400, "invalid_request_error", "malformed_http")
    EMPTY_INPUT = (400, "invalid_request_error", "empty_input")
    UNAUTHORIZED = (401, "authentication_error", "invalid_api_key")
    UNKNOWN_MODEL = (404, "invalid_request_error", "model_not_found")
    NO_RERANKER = (404, "invalid_request_error", "no_reranker")
    UNKNOWN_PATH = (404, "invalid_request_error", "not_found")
    METHOD = (405, "invalid_request_error", "method_not_allowed")
    TIMEOUT = (408, "invalid_request_error", "body_timeout")
    TOO_LARGE = (413, "invalid_request_error", "too_large")
    MALFORMED = (422, "invalid_request_error", "malformed")
    TOO_LONG = (422, "invalid_request_error", "input_too_long")
    DIMENSIONS = (422, "invalid_request_error", "dimensions_mismatch")
    TOKEN_INPUT = (422, "invalid_request_error", "token_input_unsupported")
    UNUSABLE_VECTOR = (422, "invalid_request_error", "unusable_vector")
    OVERLOADED = (429, "rate_limit_error", "overloaded")
    CLIENT_GONE = (499, "invalid_request_error", "client_closed_request")
    INTERNAL = (500, "server_error", "internal")
    LOADING = (503, "server_error", "loading")
    DRAINING = (503, "server_error", "draining")
    ENGINE = (503, "server_error", "engine_failed")
    GPU_NOT_USED = (503, "server_error", "gpu_not_used")
    CONFIGURATION = (503, "server_error", "configuration")
    MODEL_NOT_FETCHED = (503, "server_error", "model_not_fetched")
    MODEL_NOT_VERIFIED = (503, "server_error", "model_not_verified")

    @property
    def status(self) -> int:
        """HTTP status of the response."""
        return self.value[0]

    @property
    def type(self) -> str:
        """Error type in OpenAI's error format."""
        return self.value[1]

    @property
    def reason(self) -> str:
        """Name in CamelCase, as Kubernetes conditions and termination messages spell it."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def code(self) -> str:
        """Machine-readable code in OpenAI's error format."""
        return self.value[2]


@dataclass
class EmbedderError(Exception):
    """An error for the caller: kind, message, the request field at fault, and the seconds to wait before a retry.

    `indexes` are the positions of the texts at fault in the list that `param` names. `message` is one line of at most
    1000 characters that all show something: of a longer one the middle is left out, and U+FFFD stands for the others.
    """

    kind: ErrorKind
    message: str
    param: str | None = None
    retry_after_seconds: int | None = None
    indexes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.message = "".join(sign if sign.isprintable() else _SHOWN_INSTEAD for sign in _shortened(self.message))

    def __str__(self) -> str:
        return self.message

    def envelope(self) -> dict[str, dict[str, object]]:
        """Build the body of the error response, in OpenAI's error format."""
        indexes: dict[str, object] = {"indexes": list(self.indexes)} if self.indexes else {}
        said: dict[str, object] = {
            "message": self.message,
            "type": self.kind.type,
            "param": self.param,
            "code": self.kind.code,
        }
        return {"error": said | indexes}


def _shortened(message: str) -> str:
    """Return a message with its beginning and its end, where the remedy stands, if it is too long to be shown."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    half = (_LONGEST_MESSAGE - len(_OMISSION)) // 2
    return message[:half] + _OMISSION + message[-half:]


def configuration_error(message: str) -> EmbedderError:
    """Return the error for settings, or a file, with which the service cannot serve."""
    return EmbedderError(ErrorKind.CONFIGURATION, message)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence why the file `path` cannot be written within the block.

    Raises:
        EmbedderError: the system refuses to write it, for example because its volume is full or read-only.
    """
    try:
        yield
    except OSError as error:
        raise configuration_error(
            f"{path} cannot be written ({error.strerror or error}); check its folder and volume."
        ) from error


def malformed_http() -> EmbedderError:
    """Return the error that clients get who send something that is not HTTP, or not within its bounds."""
    return EmbedderError(
        ErrorKind.MALFORMED_HTTP,
        "The request is not valid HTTP, its head is too large, or its body has too many small chunks.",
    )


def connections_taken() -> EmbedderError:
    """Return the error that clients get for whom there is no connection."""
    return EmbedderError(
        ErrorKind.OVERLOADED, "All connections are taken; send the request again in 1 s.", retry_after_seconds=1
    )


def no_reranker() -> EmbedderError:
    """Return the error that callers get who ask for scores where no reranker is served."""
    return EmbedderError(
        ErrorKind.NO_RERANKER, "This service has no reranker; start it with --reranker and --reranker-file."
    )


def loading() -> EmbedderError:
    """Return the error that callers get while the model is loading."""
    return EmbedderError(ErrorKind.LOADING, "The model is being loaded; try again shortly.", retry_after_seconds=2)


def draining() -> EmbedderError:
    """Return the error that callers get whose request is not answered before the service stops."""
    return EmbedderError(
        ErrorKind.DRAINING, "This pod is shutting down; send the request again.", retry_after_seconds=1
    )


def too_long(name: str, limit: int, field: str) -> EmbedderError:
    """Return the error for a text beyond a model's window of `limit` tokens where none may be cut."""
    return EmbedderError(
        ErrorKind.TOO_LONG,
        f"{name} is longer than the model's {limit} tokens; shorten it or send truncate=true.",
        param=field,
    )


def unusable_texts(field: str, places: list[int]) -> EmbedderError:
    """Return the error for the texts of the list `field` for which the model computes nothing usable."""
    named = ", ".join(map(str, places[:_MOST_NAMED]))
    further = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return EmbedderError(
        ErrorKind.UNUSABLE_VECTOR,
        f"The model computes no finite result for these places of the list of texts: {named}{further}. It never does, "
        "so leave these texts out, or change them, instead of sending them again.",
        param=f"{field}[{places[0]}]",
        indexes=tuple(places),
    )
