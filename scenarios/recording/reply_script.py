"""Replies of a model as a script has them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.transcript_turns import AgentTurns, Block, ModelTurn

NOT_RECORDED = "(reply of the model not recorded)"
_AGENT = "Agent"
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
    nameless = [call["id"] for call in reply.calls if call["name"] == _AGENT and "name" not in call["input"]]
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
    """Return thinking, one text and calls under separate keys; None if the blocks have another order."""
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
