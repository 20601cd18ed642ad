"""State of one request to the Messages API, from its arrival to its log entry."""

import time
from typing import Any

import attrs

from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.request.api_request import ApiCaller
from coterie.scenarios.api_server.request.request_log import RequestLog, RequestLogEntry

ORGANIZATION = ("anthropic-organization-id", "org_embedded")

_CALLER_FIELDS = ("agent", "incarnation", "purpose", "turn")
"""Attributes of `ApiCaller` that are copied to the log entry; the API key must not be among them."""


@attrs.define(eq=False)
class ApiExchange:
    """One API request and the progress of its answer; the log entry of the request is made from this object."""

    request: HttpRequest
    respond: Responder
    log: RequestLog
    request_id: str
    started: float
    """Arrival of the request by the server's clock, in seconds since the epoch; cache lifetimes start at this time."""
    began: float = attrs.field(factory=time.perf_counter)
    number: int = attrs.field(init=False)
    caller: ApiCaller | None = None
    status: int = 200
    error: str | None = None
    headers: list[tuple[str, str]] = attrs.field(factory=list)
    """Additional headers of this answer, for example those of the rate limits."""
    facts: dict[str, Any] = attrs.field(factory=dict)
    """Further fields of the log entry, by name; they are added while the request is processed."""

    def __attrs_post_init__(self) -> None:
        self.number = self.log.next_number()

    def all_headers(self, content_type: str) -> list[tuple[str, str]]:
        """Return all headers of the answer, for a body of this *content_type*."""
        return [("content-type", content_type), ("request-id", self.request_id), ORGANIZATION, *self.headers]

    async def send(self, body: bytes) -> None:
        """Store the log entry and send *body* as a JSON answer with status 200."""
        self.record()
        await self.respond.send(200, self.all_headers("application/json"), body)

    def record(self) -> None:
        """Store the log entry with the fields known so far.

        Called before the last bytes are sent, so that a client finds its answered request in the log. Called again if
        the request fails later.
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
