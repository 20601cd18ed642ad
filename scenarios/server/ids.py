"""Ids that are the same in every run: derived from a seed and from what they name."""

import hashlib
import itertools

import attrs

from coterie.scenarios.server.call import Caller


@attrs.define(eq=False)
class Ids:
    """Makes message, tool and request ids.

    A reply's ids depend on who asked for which turn, not on when: a request that is asked again gets the reply it
    got before, ids included, whatever other processes did meanwhile. Only request ids count requests.
    """

    seed: int = 0
    _requests: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1))

    def request(self) -> str:
        """A new id for every HTTP request."""
        return "req_" + self._derive("request", str(next(self._requests)))

    def message(self, caller: Caller, body_digest: bytes) -> str:
        """The id of the reply to this caller's turn."""
        return "msg_" + self._derive("message", *_turn(caller, body_digest))

    def tool_use(self, caller: Caller, body_digest: bytes, index: int) -> str:
        """The id of the *index*-th tool call in that reply."""
        return "toolu_" + self._derive("tool", *_turn(caller, body_digest), str(index))

    def _derive(self, *parts: str) -> str:
        text = "\0".join((str(self.seed), *parts))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _turn(caller: Caller, body_digest: bytes) -> tuple[str, ...]:
    if caller.agent is None or caller.turn is None:
        return (body_digest.hex(),)  # a client that does not say who it is: its history tells its turns apart
    return (caller.agent, str(caller.incarnation), caller.purpose, str(caller.turn))
