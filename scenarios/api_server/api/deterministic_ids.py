"""Deterministic ids, derived from a seed and the thing they name."""

import hashlib
from collections import Counter

import attrs

from coterie.scenarios.api_server.request.api_request import ApiCaller


@attrs.define(eq=False)
class IdGenerator:
    """Makes message, tool and request ids.

    A reply's ids depend on who asked for which turn, not on when: a request that is asked again gets the reply it
    got before, ids included, whatever other processes did meanwhile. Only request ids count requests.
    """

    seed: int = 0
    _requests: Counter[str] = attrs.field(factory=Counter)

    def request(self, side: str = "api") -> str:
        """A new id for every HTTP request; the sides of the server count apart."""
        self._requests[side] += 1
        return "req_" + self._derive("request", side, str(self._requests[side]))

    def message(self, place: str) -> str:
        """The id of the reply that has its place there."""
        return "msg_" + self._derive("message", place)

    def tool_use(self, place: str, index: int) -> str:
        """The id of the *index*-th block of that reply, a tool call."""
        return "toolu_" + self._derive("tool", place, str(index))

    def _derive(self, *parts: str) -> str:
        text = "\0".join((str(self.seed), *parts))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def reply_key(caller: ApiCaller, turn: int, body_digest: bytes) -> str:
    """What tells a reply from all others: whose it is, and for which turn.

    Which start of the agent asks is no part of it: one that is resumed after a crash must get the bytes it lost.
    """
    if caller.agent is None or caller.turn is None:
        # A client that does not say who it is: one key may hold several conversations.
        return f"{body_digest.hex()}\0{turn}"
    return f"{caller.agent}\0{caller.purpose}\0{turn}"
