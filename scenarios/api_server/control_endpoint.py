"""Control endpoint `/_coterie/` of the embedded server: tests read the log, move the clock or inject faults."""

import hmac
from collections.abc import Callable
from typing import Any

import attrs
import msgspec

from coterie.clock import Clock
from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.request.errors import ApiError, invalid_request, not_found
from coterie.scenarios.api_server.request.request_log import RequestLog
from coterie.scenarios.api_server.script.http_faults import HttpFault, HttpFaultPlan
from coterie.scenarios.api_server.script.script_signals import ScriptSignals

PREFIX = "/_coterie/"
TOKEN_HEADER = "x-coterie-token"  # noqa: S105 - the header's name, not a token
LATEST = 100_000_000_000.0
"""Latest permitted time of the server's clock, in seconds since the epoch. `datetime` cannot represent much later
times.
"""


@attrs.define(eq=False)
class ControlEndpoint:
    """Answers requests to `/_coterie/`: request log, clock, injected faults, and signals for scripted replies.

    Each request must contain the control token, which `coterie serve` prints, in the header `x-coterie-token`.
    """

    token: str
    clock: Clock
    faults: HttpFaultPlan
    signals: ScriptSignals
    log: RequestLog

    def answer(self, request: HttpRequest) -> bytes:
        """Return the JSON answer to *request*. Raises `ApiError` for a wrong token, path, method, parameter or body."""
        if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            raise ApiError(
                401, "authentication_error", f"{TOKEN_HEADER}: the token printed by `coterie serve` is needed"
            )
        name = request.path.removeprefix(PREFIX)
        handlers: dict[str, dict[str, Callable[[HttpRequest], Any]]] = {
            "clock": {"GET": self._clock, "POST": self._move_clock},
            "faults": {"GET": self._faults, "POST": self._add_faults, "DELETE": self._clear_faults},
            "signal": {"GET": self._signals, "POST": self._raise_signals},
            "requests": {"GET": self._requests},
        }
        if name not in handlers:
            raise not_found(f"there is no control {request.path}; use {', '.join(PREFIX + key for key in handlers)}")
        if request.method not in handlers[name]:
            allowed = ", ".join(handlers[name])
            raise ApiError(405, "invalid_request_error", f"{request.method} {request.path}: use {allowed}")
        answer = handlers[name][request.method](request)
        return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)

    def _clock(self, _: HttpRequest) -> dict[str, float]:
        return {"now": self.clock.now(), "offset": self.clock.offset}

    def _move_clock(self, request: HttpRequest) -> dict[str, float]:
        seconds = _body(request).get("advance")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise invalid_request('advance: a number of seconds is needed, for example {"advance": 300}')
        # The first comparison also excludes integers that no float can hold.
        if abs(seconds) > LATEST or not 0 <= self.clock.now() + seconds <= LATEST:
            raise invalid_request(f"advance: the clock must stay between 0 and {LATEST:.0f} seconds after the epoch")
        self.clock.advance(seconds)
        return self._clock(request)

    def _faults(self, _: HttpRequest) -> dict[str, Any]:
        return {"faults": self.faults.list()}

    def _add_faults(self, request: HttpRequest) -> dict[str, Any]:
        body = _body(request)
        given = body["faults"] if isinstance(body.get("faults"), list) else [body]
        try:
            faults = [HttpFault.from_mapping(value) for value in given]
        except ValueError as exc:
            raise invalid_request(f"faults: {exc}") from exc
        return {"added": [self.faults.add(fault) for fault in faults]}

    def _clear_faults(self, request: HttpRequest) -> dict[str, Any]:
        self.faults.clear()
        return self._faults(request)

    def _signals(self, _: HttpRequest) -> dict[str, Any]:
        return {"raised": self.signals.raised}

    def _raise_signals(self, request: HttpRequest) -> dict[str, Any]:
        name = _body(request).get("name")
        if not isinstance(name, str) or not name:
            raise invalid_request('name: a signal\'s name is needed, for example {"name": "plan-approved"}')
        self.signals.raise_signal(name)
        return self._signals(request)

    def _requests(self, request: HttpRequest) -> bytes:
        since = request.query.get("since", "0")
        if not since.isdecimal() or len(since) > 9:
            raise invalid_request(f"since: {since[:20]!r} is not a request number")
        return self.log.to_bytes(int(since))


def _body(request: HttpRequest) -> dict[str, Any]:
    try:
        return msgspec.json.decode(request.body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise invalid_request(f"The request body must be a JSON object: {exc}") from exc
