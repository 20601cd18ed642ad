"""Model requests: the body as bytes, the identity of the calling agent, and the HTTP headers."""

from collections.abc import Sequence

import attrs

from coterie.agents.loop.model.call_intent import CallFacts, CallIntent


def _chunks(body: bytes | Sequence[bytes]) -> tuple[bytes, ...]:
    return (body,) if isinstance(body, bytes) else tuple(body)


@attrs.frozen(kw_only=True)
class Identity:
    """Name of the agent that makes a request, and number of its process, counted over restarts (incarnation)."""

    agent: str = "main"
    incarnation: int = 1


@attrs.frozen(kw_only=True)
class ModelRequest(CallFacts):
    """One model request with a fixed body, so that a retry sends the same bytes."""

    body: tuple[bytes, ...] = attrs.field(converter=_chunks)
    """JSON body in chunks, to be sent one after another; a plain bytes object becomes one chunk."""
    turn: int = 1
    """Number of the agent's turn; most background calls are counted from 1 by purpose instead. A retry keeps it."""
    api_version: str | None = None
    """Value of the HTTP header `anthropic-version`; None for the SDK's default."""
    betas: tuple[str, ...] = ()
    identity: Identity = attrs.field(factory=Identity)

    @property
    def intent(self) -> CallIntent:
        """Description of the call for the gateway (admission of model calls), which decides when it may be sent."""
        facts = {field.name: getattr(self, field.name) for field in attrs.fields(CallFacts)}
        return CallIntent(agent=self.identity.agent, **facts)

    @property
    def path(self) -> str:
        """URL path of the request, with `?beta=true` if the request uses beta features."""
        return "/v1/messages?beta=true" if self.betas else "/v1/messages"

    def headers(self, *, is_loopback: bool) -> dict[str, str]:
        """Return the HTTP headers to send in addition to those of the SDK.

        Only a server on loopback gets agent name and purpose: the embedded server (local imitation of the API) selects
        its scripted reply by them, and no other server needs them.
        """
        headers = {"content-type": "application/json", "content-length": str(sum(map(len, self.body)))}
        if self.api_version is not None:
            headers["anthropic-version"] = self.api_version
        if self.betas:
            headers["anthropic-beta"] = ",".join(self.betas)
        if is_loopback:
            headers["x-coterie-agent"] = self.identity.agent
            headers["x-coterie-incarnation"] = str(self.identity.incarnation)
            headers["x-coterie-purpose"] = self.purpose
            headers["x-coterie-turn"] = str(self.turn)
        return headers
