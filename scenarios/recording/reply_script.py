"""Replies of a model as a script has them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.transcript_turns import AgentTurns, Block, ModelTurn

NOT_RECORDED = "(what the model said here is not recorded)"
_AGENT = "Agent"
_STARTED = re.compile(r"([a-z0-9][a-z0-9-]*) (?:works in the background|has ended|is at work|is running)\b")
"""How the result of a call begins that has started an agent."""
_USUAL = ("end_turn", "tool_use")


def agent_replies(voice: AgentTurns, places: Placeholders, directory: Path | None) -> list[dict[str, Any]]:
    """The replies of one agent, which worked in *directory*: the first is for turn 1, and so on."""
    by_turn = {said.turn: said for said in voice.replies}
    last = max(by_turn, default=0)
    return [
        scripted_reply(by_turn[turn], voice, places, directory) if turn in by_turn else {"text": NOT_RECORDED}
        for turn in range(1, last + 1)
    ]


def scripted_reply(said: ModelTurn, voice: AgentTurns, places: Placeholders, directory: Path | None) -> dict[str, Any]:
    """One reply: thinking, text and calls, or all its blocks where they stand in another order."""
    heard = voice.inputs[: said.inputs]
    spoken = [part for block in _named(said, voice) if (part := _part(block, places))]
    parts: list[dict[str, Any]] = places.mask_value(spoken, heard, directory)
    found = _in_order(parts) or ({"content": parts} if parts else {})
    has_calls = any("tool" in part for part in parts)
    if said.stop_reason not in _USUAL or not found:
        found["stop"] = said.stop_reason if said.stop_reason not in _USUAL or has_calls else "end_turn"
    return found


def _named(said: ModelTurn, voice: AgentTurns) -> list[Block]:
    """The blocks of a reply; several agents that it starts without names get those that they had.

    They are numbered in the order in which they come up, which is a race.
    """
    nameless = [call["id"] for call in said.calls if call["name"] == _AGENT and "name" not in call["input"]]
    blocks = list(said.blocks)
    for index, block in enumerate(blocks):
        result = voice.results.get(block.get("id", ""))
        if len(nameless) > 1 and block.get("id") in nameless and result and (found := _STARTED.match(result.text)):
            blocks[index] = {**block, "input": {"name": found[1], **block["input"]}}
    return blocks


def _part(block: Block, places: Placeholders) -> dict[str, Any] | None:
    """A block as a script writes it; None for one that says nothing, or that only its own model can read."""
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
            places.strange[f"a block of the type {kind}, which is left out"] = None
            return None


def _in_order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Thinking, one text and calls under keys of their own; None if the blocks stand otherwise."""
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
