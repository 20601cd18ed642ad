"""Converts the model replies of a recorded session to a script: a list of replies for each agent.

Signals, for which a reply can wait, keep the recorded order of messages between agents. A reply waits only for a reply
that was earlier in the recorded session, so two replies never wait for each other.
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
"""Pattern of the result of an Agent tool call that started an agent; its group is the name of this agent."""
_USUAL = ("end_turn", "tool_use")


def agent_replies(agent_turns: AgentTurns, placeholders: Placeholders, directory: Path | None) -> list[dict[str, Any]]:
    """Return one script reply per turn (model call) of an agent in *directory*; unrecorded ones get a standard text."""
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
    """Return a recorded reply as a script reply: keys `thinking`, `text`, `tools`, or `content` for another order."""
    inputs = agent_turns.inputs[: reply.inputs]
    converted = [part for block in _named(reply, agent_turns) if (part := _part(block, placeholders))]
    parts: list[dict[str, Any]] = placeholders.mask_value(converted, inputs, directory)
    found = _in_order(parts) or ({"content": parts} if parts else {})
    has_calls = any("tool" in part for part in parts)
    if reply.stop_reason not in _USUAL or not found:
        found["stop"] = reply.stop_reason if reply.stop_reason not in _USUAL or has_calls else "end_turn"
    return found


def _named(reply: ModelTurn, agent_turns: AgentTurns) -> list[Block]:
    """Return the blocks of a reply. If it starts several unnamed agents, their calls get the recorded agent names."""
    # Otherwise the agents would be numbered in the order in which they start, which is a race.
    nameless = [call["id"] for call in reply.calls if call["name"] == "Agent" and "name" not in call["input"]]
    blocks = list(reply.blocks)
    for index, block in enumerate(blocks):
        result = agent_turns.results.get(block.get("id", ""))
        if len(nameless) > 1 and block.get("id") in nameless and result and (found := _STARTED.match(result.text)):
            blocks[index] = {**block, "input": {"name": found[1], **block["input"]}}
    return blocks


def _part(block: Block, placeholders: Placeholders) -> dict[str, Any] | None:
    """Return a content block as a part of a script reply; None if empty, encrypted, or unknown (noted in `strange`)."""
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
            placeholders.strange[f"a reply block of type {kind}, which is omitted"] = None
            return None


def _in_order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return *parts* under the keys `thinking`, `text` and `tools`; None for another order or several texts."""
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
"""Seconds that a reply waits after another agent's last reply, until its message is stored; no signal shows that."""

ReplyScript = Mapping[str, list[dict[str, Any]]]


@attrs.define(eq=False, kw_only=True)
class Barriers:
    """Adds signals, for which other replies wait, to a script, so that messages arrive in the turns as recorded."""

    script: ReplyScript
    agents: Mapping[str, AgentTurns]
    messages: Mapping[str, Envelope]
    """All messages stored in the session, by message id."""
    remarks: list[str] = attrs.field(factory=list)
    """Remarks for the user on messages that may arrive in another turn than in the session."""

    def put(self) -> None:
        """Add `signal`, `asked` and `until` to replies in `script` where the order of messages depends on timing."""
        for name, agent_turns in self.agents.items():
            replies = {turn.turn: turn for turn in agent_turns.replies}
            groups: defaultdict[int, list[RecordedDelivery]] = defaultdict(list)
            for delivery in agent_turns.deliveries:
                groups[delivery.turn].append(delivery)
            for turn, group in groups.items():
                if turn in replies and turn < max(replies):
                    self._order(name, replies[turn], group)

    def _order(self, name: str, before: ModelTurn, group: list[RecordedDelivery]) -> None:
        """Add signals so that the messages *group* reach agent *name* after its reply *before* and before its next one.

        Messages for which a tool call waited need no signal, nor do other messages of the same sender.
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
        """Make *held*, a reply of *name*, wait for a signal after *reply* of *sender*; False if *reply* came later."""
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
        """Yield the sender's name and the message of each delivery; mail not sent by a recorded agent is left out."""
        for delivery in group:
            message = self.messages.get(delivery.id)
            if message is not None and (author := _author(message)) in self.agents:
                yield author, message

    def _sending(self, author: str, message: Envelope) -> ModelTurn | None:
        """Return the reply of *author* that sent *message*: the last one before its creation; None if there is none."""
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
    """Return the agent that wrote *message*; for a plan forwarded by the root process, the agent that made the plan."""
    if message.kind != PlanApprovalRequest.kind:
        return message.sender.name
    return PlanApprovalRequest.from_body(message.body).agent or message.sender.name
