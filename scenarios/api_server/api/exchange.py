"""One HTTP exchange with the server, from arrival to its log entry."""

import time
from typing import Any

import attrs

from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.request.api_request import ApiCaller
from coterie.scenarios.api_server.request.request_log import RequestLog, RequestLogEntry

ORGANIZATION = ("anthropic-organization-id", "org_embedded")

_CALLER_FIELDS = ("agent", "incarnation", "purpose", "turn")
"""Fields of the client in the log; never its key."""


@attrs.define(eq=False)
class ApiExchange:
    """State of one request on the server, from which the log entry is made."""

    request: HttpRequest
    respond: Responder
    log: RequestLog
    request_id: str
    started: float
    """Start by the server's clock; cache lifetimes count from it."""
    began: float = attrs.field(factory=time.perf_counter)
    number: int = attrs.field(init=False)
    caller: ApiCaller | None = None
    status: int = 200
    error: str | None = None
    headers: list[tuple[str, str]] = attrs.field(factory=list)
    """Headers in addition to those of every answer."""
    facts: dict[str, Any] = attrs.field(factory=dict)
    """Fields of the log entry that are known so far."""

    def __attrs_post_init__(self) -> None:
        self.number = self.log.next_number()

    def all_headers(self, content_type: str) -> list[tuple[str, str]]:
        """Return the headers of an answer."""
        return [("content-type", content_type), ("request-id", self.request_id), ORGANIZATION, *self.headers]

    async def send(self, body: bytes) -> None:
        """Send a JSON answer with status 200."""
        self.record()
        await self.respond.send(200, self.all_headers("application/json"), body)

    def record(self) -> None:
        """Store the current entry in the log.

        Called before the last bytes are sent, so that a client finds its answered request in the log, and again after a
        later failure.
        """
        self.log.put(self.entry())

    def entry(self) -> RequestLogEntry:
        """Return the log entry with the fields known so far."""
        caller = self.caller
        names = {} if caller is None else {name: getattr(caller, name) for name in _CALLER_FIELDS}
        return RequestLogEntry(
            number=self.number,
            request_id=self.request_id,
            time=self.started,
            seconds=time.perf_counter() - self.began,
            path=self.request.path[:200],
            status=self.status,
            error=self.error,
            **names,
            **self.facts,
        )
