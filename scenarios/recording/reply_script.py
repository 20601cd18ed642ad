"""Replies of a recorded session as a script, with signals that keep the recorded order of messages.

A reply waits only for a reply that was earlier in the recorded session. So two replies never wait for each other.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import PlanApprovalRequest
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.transcript_turns import AgentTurns, Block, ModelTurn, RecordedDelivery

NOT_RECORDED = "(reply of the model not recorded)"
_STARTED = re.compile(r"([a-z0-9][a-z0-9-]*) (?:works in the background|has ended|is at work|is running)\b")
"""Start of the result of an Agent call that has started an agent."""
_USUAL = ("end_turn", "tool_use")


def agent_replies(agent_turns: AgentTurns, placeholders: Placeholders, directory: Path | None) -> list[dict[str, Any]]:
    """Return the script replies of one agent, which worked in *directory*; the first is for turn 1."""
    by_turn = {reply.turn: reply for reply in agent_turns.replies}
    last = max(by_turn, default=0)
    return [
        scripted_reply(by_turn[turn], agent_turns, placeholders, directory)
        if turn in by_turn
        else {"text": NOT_RECORDED}
        for turn in range(1, last + 1)
    ]


def scripted_reply(
    reply: ModelTurn, agent_turns: AgentTurns, placeholders: Placeholders, directory: Path | None
) -> dict[str, Any]:
    """Convert one reply: thinking, text and calls under separate keys, or all blocks if their order differs."""
    inputs = agent_turns.inputs[: reply.inputs]
    converted = [part for block in _named(reply, agent_turns) if (part := _part(block, placeholders))]
    parts: list[dict[str, Any]] = placeholders.mask_value(converted, inputs, directory)
    found = _in_order(parts) or ({"content": parts} if parts else {})
    has_calls = any("tool" in part for part in parts)
    if reply.stop_reason not in _USUAL or not found:
        found["stop"] = reply.stop_reason if reply.stop_reason not in _USUAL or has_calls else "end_turn"
    return found


def _named(reply: ModelTurn, agent_turns: AgentTurns) -> list[Block]:
    """Return the blocks of a reply; unnamed agents started together get their recorded names.

    Otherwise they would be numbered in the order in which they start, which is a race.
    """
    nameless = [call["id"] for call in reply.calls if call["name"] == "Agent" and "name" not in call["input"]]
    blocks = list(reply.blocks)
    for index, block in enumerate(blocks):
        result = agent_turns.results.get(block.get("id", ""))
        if len(nameless) > 1 and block.get("id") in nameless and result and (found := _STARTED.match(result.text)):
            blocks[index] = {**block, "input": {"name": found[1], **block["input"]}}
    return blocks


def _part(block: Block, placeholders: Placeholders) -> dict[str, Any] | None:
    """Convert a block; None if it is empty or only its own model can read it."""
    match block.get("type"):
        case "text" if block["text"]:
            return {"text": block["text"]}
        case "thinking" if block["thinking"]:
            return {"thinking": block["thinking"]}
        case "tool_use":
            return {"tool": block["name"], "input": block["input"]}
        case "text" | "thinking" | "redacted_thinking":
            return None
        case kind:
            placeholders.strange[f"a block of type {kind}, which is omitted"] = None
            return None


def _in_order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return thinking, one text and tool calls under separate keys; None if the blocks are not in this order."""
    kinds = [next(iter(part)) for part in parts]
    if kinds.count("text") > 1 or kinds != sorted(kinds, key=("thinking", "text", "tool").index):
        return None
    thoughts = [part["thinking"] for part in parts if "thinking" in part]
    found: dict[str, Any] = {}
    if thoughts:
        found["thinking"] = thoughts[0] if len(thoughts) == 1 else thoughts
    if texts := [part["text"] for part in parts if "text" in part]:
        found["text"] = texts[0]
    if calls := [{part["tool"]: part["input"]} for part in parts if "tool" in part]:
        found["tools"] = calls
    return found


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
            groups: defaultdict[int, list[RecordedDelivery]] = defaultdict(list)
            for delivery in agent_turns.deliveries:
                groups[delivery.turn].append(delivery)
            for turn, group in groups.items():
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
