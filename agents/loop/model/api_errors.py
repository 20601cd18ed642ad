"""Translation of exceptions of the Anthropic SDK and its HTTP client to `ModelError`, the error of a model call."""

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
    """Return the `ModelError` for *exc*, an exception of the SDK or its HTTP client; *begun*: the reply had begun.

    A dropped connection and a read timeout during a stream are exceptions of the HTTP client, because the SDK does not
    translate errors after a stream has started.
    """
    if not isinstance(exc, anthropic.APIStatusError):
        reason = str(exc.__cause__ or exc) or type(exc.__cause__ or exc).__name__
        return ModelUnreachable(reason, begun=begun)
    status = exc.status_code
    kind = _RETRYABLE_STATUS.get(status, ModelFailed if status >= 500 else ModelRefusedRequest)
    error = exc.body.get("error") if isinstance(exc.body, dict) else None
    return kind(
        str(error["message"]) if isinstance(error, dict) and "message" in error else exc.message,
        status=status,
        kind=exc.type,
        request_id=exc.request_id,
        retry_after=_retry_after(exc.response.headers),
    )


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Return the seconds to wait by `retry-after-ms` or `retry-after` (may be a date); None without a valid header."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


_TOO_MANY_PAGES = re.compile(r"A maximum of \d+ PDF pages may be provided")
_TOO_LARGE = 413
"""HTTP status of a rejected request over 32 MB; only images and PDFs can be that large."""
_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+) maximum)?")


@attrs.frozen(kw_only=True)
class PromptTooLong:
    """Report of the API that a prompt is too long: its size and the limit, in tokens; each None if not reported."""

    actual: int | None = None
    most: int | None = None
    is_media: bool = False
    """True if images or PDF pages are too large or too many, so that removing text would not help."""

    @classmethod
    def read(cls, error: ModelError) -> "PromptTooLong | None":
        """Return the report that *error* contains; None if the model call failed for another reason."""
        if not isinstance(error, ModelRefusedRequest):
            return None
        if error.status == _TOO_LARGE or _TOO_MANY_PAGES.match(error.message):
            return cls(is_media=True)
        found = _TOO_LONG.match(error.message)
        if found is None:
            return None
        actual, most = found.groups()
        return cls(actual=int(actual) if actual else None, most=int(most) if most else None)
