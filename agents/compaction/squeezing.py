"""When even the last round is too long: its long texts go to files, and their beginnings stay."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coterie.agents.compaction.job import Job
from coterie.agents.compaction.plan import Plan
from coterie.agents.compaction.rebuilding import Material, Rebuilt, assemble, rebuild
from coterie.memory.clearing import cleared
from coterie.memory.tool_results import Result, ResultLimits, store_results

CAPS = (32_000, 16_000, 8_000, 4_000, 2_000)
"""Characters of a text that stay whole, tried one after another."""
PREVIEW = 1_000
"""Bytes of a longer one."""


def rebuild_squeezed(job: Job, plan: Plan, material: Material, directory: Path) -> Rebuilt:
    """What *plan* makes of the conversation, shortened until it fits, or as close to that as can be.

    What leaves is in files of *directory*, which what stays names. Blocks on the disk. Raises `OSError`.
    """
    rebuilt = rebuild(job, plan, material)
    staying = [segment for message in job.messages[plan.start :] for segment in message]
    for cap in CAPS:
        if rebuilt.tokens <= job.room:
            break
        after = [
            (role, [_capped(data, cap, directory) for data in blocks])
            for role, blocks in cleared(staying, has_changed=True)
        ]
        rebuilt = assemble(job, (), after, plan, material)
    return rebuilt


def _capped(data: bytes, cap: int, directory: Path) -> bytes:
    if len(data) <= cap:
        return data
    block = msgspec.json.decode(data)
    for part in _texts(block):
        text = part["text"]
        if len(text) > cap:
            id_ = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            stored = store_results([Result(id=id_, text=text, cap=cap)], directory, ResultLimits(preview=PREVIEW))
            part["text"] = stored[id_][1]
    return msgspec.json.encode(block)


def _texts(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a block that hold text and may be shortened: of a text itself, or of a result."""
    if block["type"] == "text":
        yield block
    elif block["type"] == "tool_result":
        content = block.get("content", "")
        if isinstance(content, str):
            block["content"] = content = [{"type": "text", "text": content}]
        yield from (part for part in content if part.get("type") == "text")
