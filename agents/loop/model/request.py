"""Model requests: rendered bytes, and the identity of the caller."""

from collections.abc import Sequence

import attrs

from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Ttl


def _chunks(body: bytes | Sequence[bytes]) -> tuple[bytes, ...]:
    return (body,) if isinstance(body, bytes) else tuple(body)


@attrs.frozen(kw_only=True)
class Identity:
    """Which start of which agent is asking."""

    agent: str = "main"
    incarnation: int = 1


@attrs.frozen(kw_only=True)
class ModelRequest:
    """Everything one model call needs; sending it twice sends the same bytes."""

    body: tuple[bytes, ...] = attrs.field(converter=_chunks)
    """In chunks, as it was rendered; given as plain bytes it is one chunk."""
    model: Model
    max_tokens: int
    """0 only fills the cache; such a request must not ask for a stream."""
    prompt_tokens: int
    """An estimate of the input, for the gate's reservation."""
    prefix: bytes = b""
    """The running hash of the conversation's prefix."""
    expected_read: int | None = None
    """Tokens that the cache should already hold; None if nobody knows."""
    shared: bytes | None = None
    """The hash where the part ends that others have too; None if there is none, or it was sent before."""
    ttl: Ttl = "5m"
    """The longest life that one of its markers asks for."""
    purpose: str = "turn"
    """turn, notes, compaction, extraction, dream, recall, summary or refresh."""
    turn: int = 1
    """Counts an agent's requests of one purpose; retries of a request share its number."""
    api_version: str | None = None
    """None leaves the SDK's own."""
    betas: tuple[str, ...] = ()
    identity: Identity = attrs.field(factory=Identity)

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return sum(map(len, self.body))

    @property
    def path(self) -> str:
        """Where the request goes; betas have their own view of the same endpoint."""
        return "/v1/messages?beta=true" if self.betas else "/v1/messages"

    def headers(self, *, is_loopback: bool) -> dict[str, str]:
        """HTTP headers beyond the SDK's own.

        Only a server on this machine learns who asks: the names are nobody else's business, and the embedded
        server picks its scripted reply by them.
        """
        headers = {"content-type": "application/json", "content-length": str(self.size)}
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
