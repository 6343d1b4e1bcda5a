"""Exceptions of the development cluster; each says what went wrong and what to do about it."""


class DevclusterError(Exception):
    """A failure that a person can act on; the message ends with the remedy."""

    def __init__(self, message: str, *, remedy: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.detail = detail

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(self.detail.rstrip())
        if self.remedy:
            parts.append(f"Remedy: {self.remedy}")
        return "\n".join(parts)


class CommandError(DevclusterError):
    """A program that devcluster started ended with an error."""

    def __init__(self, message: str, *, returncode: int, output: str, remedy: str = "") -> None:
        super().__init__(message, detail=output, remedy=remedy)
        self.returncode = returncode
        self.output = output


class UnsupportedError(DevclusterError):
    """The chosen driver does not support an operation that another driver supports."""
