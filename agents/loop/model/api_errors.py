"""Errors of the SDK and its transport, translated into those of an agent."""

import email.utils
import re
import time

import anthropic
import attrs
import httpx2

from coterie.agents.errors import (
    ModelError,
    ModelFailed,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelUnreachable,
)

_RETRYABLE_STATUS = {408: ModelFailed, 409: ModelFailed, 429: ModelRateLimited, 529: ModelOverloaded}


def translate_error(exc: Exception, *, begun: bool) -> ModelError:
    """Our error for one of theirs; *begun* says whether the reply had begun.

    A dropped connection and a read timeout reach us raw from the transport, because the SDK no longer watches
    once a stream has started.
    """
    if isinstance(exc, anthropic.APIStatusError):
        return _from_status(exc)
    reason = str(exc.__cause__ or exc) or type(exc.__cause__ or exc).__name__
    return ModelUnreachable(reason, begun=begun)


def _from_status(exc: anthropic.APIStatusError) -> ModelError:
    status = exc.status_code
    kind = _RETRYABLE_STATUS.get(status, ModelFailed if status >= 500 else ModelRefusedRequest)
    return kind(
        _message(exc),
        status=status,
        kind=exc.type,
        request_id=exc.request_id,
        retry_after=_retry_after(exc.response.headers),
    )


def _message(exc: anthropic.APIStatusError) -> str:
    error = exc.body.get("error") if isinstance(exc.body, dict) else None
    return str(error["message"]) if isinstance(error, dict) and "message" in error else exc.message


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds from `retry-after-ms` or `retry-after`, which may also be a date; None if there is neither."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


_TOO_MUCH_TO_SEE = re.compile(r"A maximum of \d+ PDF pages may be provided")
_TOO_LARGE = 413
"""The status of a request over 32 MB, which no text in any window has."""
_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+) maximum)?")


@attrs.frozen(kw_only=True)
class PromptTooLong:
    """How long a prompt was, and how long it may be, in tokens; None for what was not said."""

    actual: int | None = None
    most: int | None = None
    is_media: bool = False
    """Whether it is not the text that is too long, but what stands beside it: pictures and pages."""

    @classmethod
    def read(cls, error: ModelError) -> "PromptTooLong | None":
        """None if *error* says something else."""
        if not isinstance(error, ModelRefusedRequest):
            return None
        if error.status == _TOO_LARGE or _TOO_MUCH_TO_SEE.match(error.message):
            return cls(is_media=True)
        found = _TOO_LONG.match(error.message)
        if found is None:
            return None
        actual, most = found.groups()
        return cls(actual=int(actual) if actual else None, most=int(most) if most else None)
