"""Errors of the embedded server: HTTP status and error type of the API."""

import attrs


@attrs.define(eq=False)
class ApiError(Exception):
    """An error answer, sent in the API's error envelope."""

    status: int
    kind: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.message}"


def invalid_request(message: str) -> ApiError:
    """Return a 400 error: the request breaks a documented rule."""
    return ApiError(400, "invalid_request_error", message)


def not_found(message: str) -> ApiError:
    """Return a 404 error: no such path, model or control."""
    return ApiError(404, "not_found_error", message)
