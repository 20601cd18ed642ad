"""Deterministic ids, derived from a seed and the named object."""

import hashlib
from collections import Counter

import attrs

from coterie.scenarios.api_server.request.api_request import ApiCaller


@attrs.define(eq=False)
class IdGenerator:
    """Creates message, tool and request ids.

    The ids of a reply depend on agent and turn, not on time, so a repeated request gets the same reply with the same
    ids. Only request ids are counted.
    """

    seed: int = 0
    _requests: Counter[str] = attrs.field(factory=Counter)

    def request(self, side: str = "api") -> str:
        """Return a new id for an HTTP request; API and control requests are numbered separately."""
        self._requests[side] += 1
        return "req_" + self._derive("request", side, str(self._requests[side]))

    def message(self, key: str) -> str:
        """Return the message id of the reply with this `reply_key`."""
        return "msg_" + self._derive("message", key)

    def tool_use(self, key: str, index: int) -> str:
        """Return the id of the tool call in block *index* of the reply with this `reply_key`."""
        return "toolu_" + self._derive("tool", key, str(index))

    def _derive(self, *parts: str) -> str:
        text = "\0".join((str(self.seed), *parts))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def reply_key(caller: ApiCaller, turn: int, body_digest: bytes) -> str:
    """Return the key that identifies a reply: agent, purpose and turn.

    The incarnation is not part of the key, because an agent that is resumed after a crash must get the same bytes
    again.
    """
    if caller.agent is None or caller.turn is None:
        # Without an agent name, one API key may hold several conversations.
        return f"{body_digest.hex()}\0{turn}"
    return f"{caller.agent}\0{caller.purpose}\0{turn}"
