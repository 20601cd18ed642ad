"""Selects the scripted reply for a request, so that a repeated request gets the same reply.

The choice depends on agent, purpose, turn and the content of the request. The memory of the selector is bounded: the
least recently used entries are removed first.
"""

import bisect
import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest, Block
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.script.http_faults import HttpFault
from coterie.scenarios.api_server.script.located_yaml import shorten
from coterie.scenarios.api_server.script.request_facts import RequestFacts
from coterie.scenarios.api_server.script.script_parser import DEFAULT, Script
from coterie.scenarios.api_server.script.scripted_reply import ScriptedReply
from coterie.scenarios.api_server.script.text_template import SlotEmpty, fill

MEMORY_LIMIT = 100_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

Client = tuple[str, str | None, str]
"""API key, agent and purpose of a client; turns are counted for each such client."""


@attrs.frozen(kw_only=True)
class SelectedReply:
    """The scripted reply for one request, with filled slots."""

    reply: ScriptedReply
    content: tuple[Block, ...]
    """Blocks of the reply, with slots replaced by values of the request; the receiver may change the blocks."""
    facts: RequestFacts
    fault: HttpFault | None = None
    """Fault to inject into this answer; None if the reply has no fault or it does not apply to this request."""


@attrs.frozen(kw_only=True)
class AgentScript:
    """The replies of one agent for one purpose (such as `turn`, a model call of the agent itself)."""

    owner: str
    rules: tuple[ScriptedReply, ...]
    sequence: tuple[ScriptedReply, ...]
    last_turns: tuple[float, ...]
    """Number of the last turn that each reply of the sequence answers; infinite for `times: always`."""

    @classmethod
    def of(cls, owner: str, replies: tuple[ScriptedReply, ...]) -> "AgentScript":
        """Split *replies* of agent *owner* for one purpose into rules (with `when`) and an ordered sequence."""
        sequence = tuple(reply for reply in replies if reply.when is None)
        turns = (math.inf if reply.times is None else reply.times for reply in sequence)
        return cls(
            owner=owner,
            rules=tuple(reply for reply in replies if reply.when is not None),
            sequence=sequence,
            last_turns=tuple(itertools.accumulate(turns)),
        )

    def at(self, turn: int) -> ScriptedReply | None:
        """Return the reply of the sequence for *turn*, counted from 1; None if the sequence is shorter."""
        index = bisect.bisect_left(self.last_turns, turn)
        return self.sequence[index] if index < len(self.sequence) else None


class ReplySelector:
    """Selects replies from one script; equal seeds and requests give equal replies."""

    def __init__(self, script: Script, *, seed: int = 0) -> None:
        self.script = script
        self._seed = seed
        self._agent_scripts = {
            (owner, purpose): AgentScript.of(owner, tuple(reply for reply in replies if reply.purpose == purpose))
            for owner, replies in script.replies.items()
            for purpose in {reply.purpose for reply in replies}
        }
        self._served: _Recent[Client, tuple[int, bytes]] = _Recent()
        """For clients that do not send turn numbers: number of the last turn, and the hash of its request."""
        self._taken: _Recent[tuple[Client, str], frozenset[int]] = _Recent()
        """Turns that each rule with `times` has answered, by client and name of the rule."""
        self._asked: _Recent[tuple[Client, int], int] = _Recent()
        """Number of requests so far for each turn whose reply has a fault, because a fault affects only the first ones.
        """

    def select(self, call: ApiRequest, body_digest: bytes) -> SelectedReply:
        """Return the scripted reply for *call*.

        *body_digest*, the hash of the request's body, identifies a retry by a client that sends no turn numbers. Raises
        `ApiError` (400) if no reply fits (with the closest rule), or if a slot has no value; the state is then
        unchanged.
        """
        client = (call.caller.key, call.caller.agent, call.caller.purpose)
        turn = self._turn(call.caller, client, body_digest)
        facts = RequestFacts(call=call, turn=turn)
        script = self._agent_script(call.caller)
        rules, following = ((), None) if script is None else (script.rules, script.at(turn))
        reply = next((rule for rule in rules if not self._failures(rule, client, facts)), following)
        if reply is None:
            raise invalid_request(self._explain(script, client, facts))
        if reply.when is not None:
            facts = attrs.evolve(facts, match=reply.when.found(facts))
        try:
            content = tuple(fill(block, facts) for block in reply.content)
        except SlotEmpty as exc:
            raise invalid_request(f"script {self.script.source} line {reply.line}: {exc}") from exc
        self._remember(reply, client, turn, call.caller, body_digest)
        fault = reply.fault and self._fault(reply, client, attrs.evolve(call.caller, turn=turn), call.model.id)
        return SelectedReply(reply=reply, content=content, facts=facts, fault=fault)

    def _turn(self, caller: ApiCaller, client: Client, digest: bytes) -> int:
        if caller.turn is not None:
            return caller.turn
        last, last_digest = self._served.get(client, (0, b""))
        return last if caller.retry and digest == last_digest else last + 1

    def _agent_script(self, caller: ApiCaller) -> AgentScript | None:
        """Return the agent's replies for the purpose of the request; None if there are none.

        The list `default` serves agents without a list; for purposes except `turn`, also agents without such replies.
        """
        script = self._agent_scripts.get((self._owner(caller.agent), caller.purpose))
        if script is None and caller.purpose != "turn":
            return self._agent_scripts.get((DEFAULT, caller.purpose))
        return script

    def _owner(self, agent: str | None) -> str:
        return agent if agent is not None and agent in self.script.replies else DEFAULT

    def _failures(self, rule: ScriptedReply, client: Client, facts: RequestFacts) -> tuple[str, ...]:
        assert rule.when is not None
        failures = rule.when.failures(facts)
        taken = self._taken.get((client, rule.name), frozenset())
        if rule.times is not None and facts.turn not in taken and len(taken) >= rule.times:
            failures += (f"an unused turn, but it has served {rule.times} (`times`)",)
        return failures

    def _remember(self, reply: ScriptedReply, client: Client, turn: int, caller: ApiCaller, digest: bytes) -> None:
        if caller.turn is None:
            self._served.put(client, (turn, digest))
        if reply.when is not None and reply.times is not None:
            place = (client, reply.name)
            self._taken.put(place, self._taken.get(place, frozenset()) | {turn})

    def _fault(self, reply: ScriptedReply, client: Client, caller: ApiCaller, model: str) -> HttpFault | None:
        fault = reply.fault
        if fault is None or not fault.matches(caller, model):
            return None
        assert caller.turn is not None
        place = (client, caller.turn)
        asked = self._asked.get(place, 0) + 1
        self._asked.put(place, asked)
        if fault.count is not None and asked > fault.count:
            return None
        # Seeded by the request, so that the order of requests from several agents does not matter.
        seed = f"{self._seed}/{reply.name}/{caller.agent}/{caller.purpose}/{caller.turn}/{asked}"
        draw = random.Random(seed).random()  # noqa: S311 - repeatable, not secret
        return fault if draw < fault.probability else None

    def _explain(self, script: AgentScript | None, client: Client, facts: RequestFacts) -> str:
        caller = facts.call.caller
        agent = "a client without a name" if caller.agent is None else f"agent {caller.agent!r}"
        text = "none" if facts.last_user_text is None else shorten(facts.last_user_text, 80)
        asked = f"no scripted reply for {agent}, purpose {caller.purpose!r}, turn {facts.turn}; last user text: {text}"
        if script is None:
            return f"{asked}\n{self._missing_script_text(caller)}"
        lines = [asked]
        if script.rules:
            tried = [(rule, self._failures(rule, client, facts)) for rule in script.rules]
            rule, failures = min(tried, key=lambda pair: len(pair[1]))
            lines.append(f"script {self.script.source} line {rule.line}: rule needs {'; and '.join(failures)}")
        if script.sequence:
            lines.append(_sequence_end(script, facts.turn))
        return "\n".join(lines)

    def _missing_script_text(self, caller: ApiCaller) -> str:
        owner, source = self._owner(caller.agent), self.script.source
        if owner in self.script.replies:
            return f"script {source}: {owner!r} has no reply with the purpose {caller.purpose!r}; add one"
        names = ", ".join(repr(name) for name in self.script.replies)
        return f"script {source} has replies for {names} only; add the agent or {DEFAULT!r}"


def _sequence_end(script: AgentScript, turn: int) -> str:
    count = len(script.sequence)
    turns = int(script.last_turns[-1])
    length = f"{count} {'reply' if count == 1 else 'replies'}{'' if turns == count else f' for {turns} turns'}"
    return f"the sequence of {script.owner!r} has {length}, this is turn {turn}; add a reply or `times: always`"


class _Recent(Generic[Key, Value]):
    """A mapping that removes the least recently used entries beyond `MEMORY_LIMIT`."""

    def __init__(self) -> None:
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, default: Value) -> Value:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key, default)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > MEMORY_LIMIT:
            self._values.popitem(last=False)
