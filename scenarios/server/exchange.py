"""One request and what becomes of it, from arrival to the line in the log."""

from typing import Any

import attrs

from coterie.scenarios.server.call import Caller
from coterie.scenarios.server.http import HttpRequest, Responder

ORGANIZATION = ("anthropic-organization-id", "org_embedded")


@attrs.define(eq=False)
class Exchange:
    """Carries a request through the server; the log entry is written from here."""

    request: HttpRequest
    respond: Responder
    request_id: str
    number: int
    started: float
    """By the server's clock: cache lifetimes count from here."""
    caller: Caller | None = None
    status: int = 200
    error: str | None = None
    headers: list[tuple[str, str]] = attrs.field(factory=list)
    """Beyond those that every answer has."""
    facts: dict[str, Any] = attrs.field(factory=dict)
    """Fields of the log entry, as they become known."""

    def all_headers(self, content_type: str) -> list[tuple[str, str]]:
        """The headers of an answer."""
        return [("content-type", content_type), ("request-id", self.request_id), ORGANIZATION, *self.headers]

    async def send(self, body: bytes) -> None:
        """Answer 200 with JSON."""
        await self.respond.send(200, self.all_headers("application/json"), body)
