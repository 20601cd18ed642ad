"""Signals between scripted agents that keep the recorded order of messages.

A reply waits only for a reply that was earlier in the recorded session. So two replies never wait for each other.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import PlanApprovalRequest
from coterie.scenarios.recording.transcript_turns import AgentTurns, ModelTurn, RecordedDelivery

MOMENT = 1.0
"""Delay in seconds that lets an agent's final report be stored; the API server gets no signal for that."""

ReplyScript = Mapping[str, list[dict[str, Any]]]


@attrs.define(eq=False, kw_only=True)
class Barriers:
    """Adds signals to the replies of a script."""

    script: ReplyScript
    agents: Mapping[str, AgentTurns]
    messages: Mapping[str, Envelope]
    """All stored messages, by id."""
    remarks: list[str] = attrs.field(factory=list)
    """Remarks on what a run may do differently."""

    def put(self) -> None:
        """Add all signals that are needed."""
        for name, agent_turns in self.agents.items():
            replies = {turn.turn: turn for turn in agent_turns.replies}
            for turn, group in _by_turn(agent_turns).items():
                if turn in replies and turn < max(replies):
                    self._order(name, replies[turn], group)

    def _order(self, name: str, before: ModelTurn, group: list[RecordedDelivery]) -> None:
        """Make *group* arrive at *name* after its reply *before* and before the next one.

        Messages that a tool call waited for need no signal, nor do messages from the agent that it waited for.
        """
        waited_for = {author for author, _ in self._messages([each for each in group if not each.is_shown])}
        group = [each for each in group if each.is_shown]
        sent = [
            (author, reply)
            for author, message in self._messages(group)
            if author not in waited_for and (reply := self._sending(author, message))
        ]
        for sender, reply in sent:
            if before.at < reply.at:
                self._wait((sender, reply.turn), "until", self._raised(name, before.turn, "signal"))
            elif before.asked < reply.at:
                self._wait((sender, reply.turn), "until", self._raised(name, before.turn, "asked"))
        # A waiting agent is woken by the first message; only several messages, or a busy recipient, are a race.
        if before.calls or len(group) > 1:
            for one, other in pairwise(sent):
                if one[0] != other[0]:
                    self._hold(*other, *one)
            for sender, reply in sent:
                if not self._hold(name, before, sender, reply):
                    self.remarks.append(
                        f"{sender} wrote to {name} during the tool calls of turn {before.turn}: "
                        "the message may arrive a turn later"
                    )

    def _hold(self, name: str, held: ModelTurn, sender: str, reply: ModelTurn) -> bool:
        """Delay the reply *held* until the message sent with *reply* is stored; False if *reply* was later."""
        later = next((each for each in self.agents[sender].replies if each.turn == reply.turn + 1), None)
        if later is not None and later.asked < held.at:
            self._wait((name, held.turn), "until", self._raised(sender, later.turn, "asked"))
        elif reply.at < held.at:
            self._wait((name, held.turn), "until", self._raised(sender, reply.turn, "signal"))
            self.script[name][held.turn - 1]["delay"] = MOMENT
        else:
            return False
        return True

    def _messages(self, group: list[RecordedDelivery]) -> Iterator[tuple[str, Envelope]]:
        """Yield the delivered messages with the agents that sent them."""
        for delivery in group:
            message = self.messages.get(delivery.id)
            if message is not None and (author := _author(message)) in self.agents:
                yield author, message

    def _sending(self, author: str, message: Envelope) -> ModelTurn | None:
        """Return the reply that sent *message*, or after which its author ended."""
        replies = self.agents[author].replies
        return next((reply for reply in reversed(replies) if reply.at <= message.created), None)

    def _raised(self, name: str, turn: int, key: str) -> str:
        signal = f"{name}-{turn}" if key == "signal" else f"{name}-{turn}-asked"
        self._wait((name, turn), key, signal)
        return signal

    def _wait(self, turn_of: tuple[str, int], key: str, signal: str) -> None:
        name, turn = turn_of
        reply = self.script[name][turn - 1]
        known = reply.get(key, [])
        reply[key] = [*known, *([] if signal in known else [signal])]


def _author(message: Envelope) -> str:
    """Return the agent that wrote *message*; for a plan that the root forwards, the agent of the plan."""
    if message.kind != PlanApprovalRequest.kind:
        return message.sender.name
    return PlanApprovalRequest.from_body(message.body).agent or message.sender.name


def _by_turn(agent_turns: AgentTurns) -> dict[int, list[RecordedDelivery]]:
    groups: defaultdict[int, list[RecordedDelivery]] = defaultdict(list)
    for delivery in agent_turns.deliveries:
        if delivery.turn:
            groups[delivery.turn].append(delivery)
    return groups
