"""Translation of errors of the SDK and its transport to errors of an agent."""

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
    """Return the `ModelError` for an error of the SDK; *begun* is True if the reply had begun.

    A dropped connection and a read timeout come directly from the transport, because the SDK does not translate errors
    after a stream has started.
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
    """Return the seconds of `retry-after-ms` or `retry-after`, which may be a date; None if there is neither."""
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
"""Status of a request over 32 MB; only images and PDFs can be that large."""
_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+) maximum)?")


@attrs.frozen(kw_only=True)
class PromptTooLong:
    """Size of a rejected prompt and the limit, in tokens; None if the API did not report them."""

    actual: int | None = None
    most: int | None = None
    is_media: bool = False
    """True if images or PDF pages are too large or too many, and not the text."""

    @classmethod
    def read(cls, error: ModelError) -> "PromptTooLong | None":
        """Parse *error*; None if it is another error."""
        if not isinstance(error, ModelRefusedRequest):
            return None
        if error.status == _TOO_LARGE or _TOO_MANY_PAGES.match(error.message):
            return cls(is_media=True)
        found = _TOO_LONG.match(error.message)
        if found is None:
            return None
        actual, most = found.groups()
        return cls(actual=int(actual) if actual else None, most=int(most) if most else None)
