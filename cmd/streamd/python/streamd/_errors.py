"""Errors of the package."""


class StreamdError(Exception):
    """The base of all errors of this package."""


class UnreachableError(StreamdError):
    """The daemon cannot be reached, or its answer broke off."""


class APIError(StreamdError):
    """The daemon refused a call. The text is the daemon's own message.

    `status` is the status of HTTP, and `code` is one of the API's words, such as not_found.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status, self.code, self.message = status, code, message

    def __reduce__(self) -> tuple[type["APIError"], tuple[int, str, str]]:
        return type(self), (self.status, self.code, self.message)
