"""Conversations rebuilt after a compaction: the summary, pinned context and the messages that stay."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan
from coterie.agents.layers.layer4_compaction.restore import RestoredFile, RestoredSkill
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import Part, Way
from coterie.agents.prompts import render
from coterie.memory.compaction.conversation_view import SegmentView
from coterie.memory.compaction.cut_point import Messages
from coterie.memory.compaction.result_clearing import clear_results
from coterie.memory.compaction.result_storage import LongResult, store_results
from coterie.memory.compaction.rewrite import THINKING, Message
from coterie.memory.compaction.summary_text import block_text, fit_user_texts, missing_user_texts
from coterie.memory.layer_settings import ResultSettings

_TEXT = b'{"type":"text"'
_OPENS, _CLOSES = "<earlier-conversation>", "</earlier-conversation>"
"""Around a summary; see `prompts/compacted.md`."""
_ORIGINS: dict[Way, str] = {
    "notes": "These are the notes that were kept while it happened.",
    "summary": "This is a summary of it.",
    "chunks": "This is a summary of it, made part by part.",
    "rule": "There is no summary of it: it left because there was no room.",
}

WENT_ON = "I went on from here. What came of it is summarised next."


@attrs.frozen(kw_only=True)
class SummaryParts:
    """What goes with a summary."""

    context: str = ""
    """What an agent is told before its task."""
    pinned: str = ""
    user_texts: Sequence[str] = ()
    user_text_room: int
    """Tokens for them."""
    skills: Sequence[RestoredSkill] = ()
    files: Sequence[RestoredFile] = ()
    where: str
    """The transcript."""


@attrs.frozen(kw_only=True)
class RebuiltConversation:
    """A conversation that could take the place of the one there is."""

    messages: Sequence[Message]
    parts: Sequence[Part]
    """What the blocks of the message are that is new."""
    at_message: int
    """Where it stands."""
    user_texts_added: int
    skills: Sequence[RestoredSkill]
    files: Sequence[RestoredFile]
    tokens: int
    """An estimate, of all of it."""


def rebuild(job: CompactionJob, plan: CompactionPlan, material: SummaryParts) -> RebuiltConversation:
    """What *plan* makes of the conversation. Nothing has changed yet."""
    before = _before(job.messages[: plan.first])
    staying = [segment for message in job.messages[plan.start :] for segment in message]
    return assemble(job, before, clear_results(staying, has_changed=True), plan, material)


def assemble(
    job: CompactionJob,
    before: Sequence[Message],
    after: Sequence[Message],
    plan: CompactionPlan,
    material: SummaryParts,
) -> RebuiltConversation:
    """The conversation with *before* and *after* around what *plan* and *material* say."""
    missing = missing_user_texts(material.user_texts, "\n".join([plan.summary, *_user_texts([*before, *after])]))
    blocks = _blocks(plan, material, missing)
    messages = [*before, ("user", [text_block(text) for _, text in blocks]), *after]
    return RebuiltConversation(
        messages=messages,
        parts=[part for part, _ in blocks],
        at_message=len(before),
        user_texts_added=len(missing),
        skills=material.skills,
        files=material.files,
        tokens=_fixed(job.agent) + estimate_messages(messages),
    )


def earlier_summaries(messages: Iterable[Sequence[SegmentView]]) -> list[str]:
    """What compactions before have left in *messages*, without its frame."""
    texts = (block_text(segment.data) for message in messages for segment in message if segment.block_type == "text")
    framed = (text for text in texts if text.startswith(_OPENS) and text.endswith(_CLOSES))
    return [text.removesuffix(_CLOSES).partition("\n\n")[2].strip() for text in framed]


def estimate_messages(messages: Sequence[Message]) -> int:
    """An estimate."""
    return sum(estimate_block(data) for _, blocks in messages for data in blocks)


def _blocks(plan: CompactionPlan, material: SummaryParts, missing: Sequence[str]) -> list[tuple[Part, str]]:
    blocks: list[tuple[Part, str]] = []
    if material.context and not plan.first:
        blocks.append(("context", material.context))
    blocks.append(("summary", render("compacted", origin=_ORIGINS[plan.by], summary=plan.summary)))
    if missing:
        shown = fit_user_texts(missing, material.user_text_room, material.where)
        said = "\n\n".join(f"<user-message>\n{text}\n</user-message>" for text in shown)
        blocks.append(("words", render("compacted_words", messages=said)))
    if material.pinned:
        blocks.append(("standing", render("compacted_standing", sections=material.pinned)))
    if material.skills:
        skills = "\n\n".join(skill.shown() for skill in material.skills)
        blocks.append(("skills", render("compacted_skills", skills=skills)))
    if material.files:
        files = "\n\n".join(file.shown() for file in material.files)
        blocks.append(("files", render("compacted_files", files=files)))
    return blocks


def _user_texts(messages: Iterable[Message]) -> Iterator[str]:
    """The texts that the user's messages hold; a tool's result may quote the human, and is no message of theirs."""
    for role, blocks in messages:
        if role == "user":
            yield from (block_text(data) for data in blocks if data.startswith(_TEXT))


def _fixed(agent: Agent) -> int:
    """Tokens of tools and system, which no compaction changes."""
    prefix = agent.conversation.prefix
    return sum(estimate_block(prefix[index].data) for index in range(prefix.prompt_length))


def _before(messages: Messages) -> list[Message]:
    """*messages* as they were.

    Calls that an earlier rewrite has left without their thinking are not what the API goes on from; so they are gone
    on from here.
    """
    before = [_as_it_was(message) for message in messages]
    last = next((message for message in reversed(messages) if message[0].role == "assistant"), ())
    types = {segment.block_type for segment in last}
    if "tool_use" in types and types.isdisjoint(THINKING):
        before.append(("assistant", [text_block(WENT_ON)]))
    return before


def _as_it_was(message: Iterable[SegmentView]) -> Message:
    segments = list(message)
    role = segments[0].role
    assert role is not None
    return role, [segment.data for segment in segments]


CAPS = (32_000, 16_000, 8_000, 4_000, 2_000)
"""Characters of a text that stay whole, tried one after another."""
PREVIEW = 1_000
"""Bytes of a longer one."""


def rebuild_truncated(
    job: CompactionJob, plan: CompactionPlan, material: SummaryParts, directory: Path
) -> RebuiltConversation:
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
            for role, blocks in clear_results(staying, has_changed=True)
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
            stored = store_results([LongResult(id=id_, text=text, cap=cap)], directory, ResultSettings(preview=PREVIEW))
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
