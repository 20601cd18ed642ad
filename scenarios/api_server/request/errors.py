"""Error responses of the embedded server, with the HTTP status and error type of the Messages API."""

import attrs


@attrs.define(eq=False)
class ApiError(Exception):
    """An error for the client. The server sends status, type and message as an error response in the API's format."""

    status: int
    kind: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.message}"


def invalid_request(message: str) -> ApiError:
    """Return an `invalid_request_error` (400), for a request that breaks a rule of the API."""
    return ApiError(400, "invalid_request_error", message)


def not_found(message: str) -> ApiError:
    """Return a `not_found_error` (404), for an unknown path or model."""
    return ApiError(404, "not_found_error", message)
