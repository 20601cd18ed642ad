"""Construction of the conversation after a compaction: summary, pinned context, restored files and kept messages."""

import codecs
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES, estimate_block
from coterie.agents.loop.conversation.transcript_records import Part, UsedSkill, Way
from coterie.agents.prompts import render
from coterie.agents.skills.skill_text import skill_block, skill_text
from coterie.agents.tools.skills.load_skill import SkillTool
from coterie.agents.tools.tool import Workspace
from coterie.memory.compaction.conversation_view import SegmentView
from coterie.memory.compaction.cut_point import Messages
from coterie.memory.compaction.result_clearing import clear_results
from coterie.memory.compaction.result_storage import LongResult, store_results
from coterie.memory.compaction.rewrite import THINKING, Message, rewrite
from coterie.memory.compaction.summary_text import block_text, fit_user_texts, missing_user_texts
from coterie.memory.layer_settings import CompactionSettings, ResultSettings

_TEXT = b'{"type":"text"'
_OPENS, _CLOSES = "<earlier-conversation>", "</earlier-conversation>"
"""Tags around the summary of a compaction; the prompt file `prompts/compacted.md` contains them."""
_ORIGINS: dict[Way, str] = {
    "notes": "The notes below were written while it happened.",
    "summary": "The text below is a summary of it.",
    "chunks": "The text below is a summary of it, written in several parts.",
    "rule": "There is no summary of it: it was removed to make room.",
}

CONTINUED = "I continued from here. The results are summarised next."


@attrs.frozen(kw_only=True)
class RestoredText:
    """Text of a recently read file or loaded skill that a compaction shows to the model again, cut if it is long."""

    name: str
    """Path of the file, or name of the skill."""
    shown: str
    """The text with its XML tags, such as `<file path="...">`, as the model sees it."""


@attrs.frozen(kw_only=True)
class SummaryParts:
    """Texts that a compaction inserts into the conversation together with the summary."""

    context: str = ""
    """Text before the agent's task: instructions, memory index and list of skills; empty if there is none."""
    pinned: str = ""
    user_texts: Sequence[str] = ()
    user_text_room: int
    """Maximum number of tokens of the inserted user texts; if they need more, they are shortened."""
    skills: Sequence[RestoredText] = ()
    files: Sequence[RestoredText] = ()
    where: str
    """Path of the transcript, which shortened user texts name as the place of the full text."""


@attrs.frozen(kw_only=True)
class RebuiltConversation:
    """Conversation as a compaction would leave it; it has not replaced the agent's conversation yet."""

    messages: Sequence[Message]
    parts: Sequence[Part]
    """Kind of content of each block of the new message, such as `summary` or `files`, in their order."""
    at_message: int
    """Index in `messages` of the new message, which contains the summary."""
    user_texts_added: int
    skills: Sequence[RestoredText]
    files: Sequence[RestoredText]
    tokens: int
    """Estimated tokens of the whole conversation, including tool definitions and system prompt."""


def rebuild(job: CompactionJob, plan: CompactionPlan, parts: SummaryParts) -> RebuiltConversation:
    """Return the conversation with *plan*'s summary instead of the replaced messages; does not change the agent."""
    before = _before(job.messages[: plan.first])
    staying = [segment for message in job.messages[plan.start :] for segment in message]
    return assemble(job, before, clear_results(staying, has_changed=True), plan, parts)


def assemble(
    job: CompactionJob,
    before: Sequence[Message],
    after: Sequence[Message],
    plan: CompactionPlan,
    parts: SummaryParts,
) -> RebuiltConversation:
    """Return a conversation: messages *before*, a new user message with the summary and *parts*, messages *after*."""
    user_blocks = [data for role, blocks in [*before, *after] if role == "user" for data in blocks]
    # A tool result that quotes the user does not count.
    kept = [block_text(data) for data in user_blocks if data.startswith(_TEXT)]
    missing = missing_user_texts(parts.user_texts, "\n".join([plan.summary, *kept]))
    blocks = _blocks(plan, parts, missing)
    prefix = job.agent.conversation.prefix
    unchanged = [prefix[index].data for index in range(prefix.prompt_length)]  # tools and system prompt
    messages = [*before, ("user", [text_block(text) for _, text in blocks]), *after]
    return RebuiltConversation(
        messages=messages,
        parts=[part for part, _ in blocks],
        at_message=len(before),
        user_texts_added=len(missing),
        skills=parts.skills,
        files=parts.files,
        tokens=sum(map(estimate_block, chain(unchanged, *(blocks for _, blocks in messages)))),
    )


def earlier_summaries(messages: Iterable[Sequence[SegmentView]]) -> list[str]:
    """Return the summaries that earlier compactions wrote into *messages*, without their tags and introduction."""
    texts = (block_text(segment.data) for message in messages for segment in message if segment.block_type == "text")
    framed = (text for text in texts if text.startswith(_OPENS) and text.endswith(_CLOSES))
    return [text.removesuffix(_CLOSES).partition("\n\n")[2].strip() for text in framed]


def _blocks(plan: CompactionPlan, parts: SummaryParts, missing: Sequence[str]) -> list[tuple[Part, str]]:
    blocks: list[tuple[Part, str]] = []
    if parts.context and not plan.first:
        blocks.append(("context", parts.context))
    blocks.append(("summary", render("compacted", origin=_ORIGINS[plan.by], summary=plan.summary)))
    if missing:
        shown = fit_user_texts(missing, parts.user_text_room, parts.where)
        said = "\n\n".join(f"<user-message>\n{text}\n</user-message>" for text in shown)
        blocks.append(("words", render("compacted_words", messages=said)))
    if parts.pinned:
        blocks.append(("standing", render("compacted_standing", sections=parts.pinned)))
    if parts.skills:
        skills = "\n\n".join(skill.shown for skill in parts.skills)
        blocks.append(("skills", render("compacted_skills", skills=skills)))
    if parts.files:
        files = "\n\n".join(file.shown for file in parts.files)
        blocks.append(("files", render("compacted_files", files=files)))
    return blocks


def _before(messages: Messages) -> list[Message]:
    """Return *messages*, kept before the summary; add a short reply if the last reply has tool calls but no thinking.

    The API would reject a continuation of tool calls whose thinking blocks an earlier compaction or clearing removed.
    """
    before = rewrite(chain.from_iterable(messages), lambda segment: segment.data)
    last = next((message for message in reversed(messages) if message[0].role == "assistant"), ())
    types = {segment.block_type for segment in last}
    if "tool_use" in types and types.isdisjoint(THINKING):
        before.append(("assistant", [text_block(CONTINUED)]))
    return before


CAPS = (32_000, 16_000, 8_000, 4_000, 2_000)
"""Lengths in characters above which a text is moved to a file, tried in this order until the conversation fits."""
PREVIEW = 1_000
"""Number of bytes from the beginning of a text that stay in the conversation if the text is moved to a file."""


def rebuild_truncated(
    job: CompactionJob, plan: CompactionPlan, parts: SummaryParts, directory: Path
) -> RebuiltConversation:
    """Return the conversation after *plan*, with long texts moved to files until it has at most `job.room` tokens.

    Only the beginning of such a text and the path of its file below *directory* stay. The conversation may still be too
    long. Blocks on the disk. Raises `OSError`.
    """
    rebuilt = rebuild(job, plan, parts)
    staying = [segment for message in job.messages[plan.start :] for segment in message]
    for cap in CAPS:
        if rebuilt.tokens <= job.room:
            break
        after = [
            (role, [_capped(data, cap, directory) for data in blocks])
            for role, blocks in clear_results(staying, has_changed=True)
        ]
        rebuilt = assemble(job, (), after, plan, parts)
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
    """Yield the text parts of *block*, to change them in place; turns a tool result that is a string into a list."""
    if block["type"] == "text":
        yield block
    elif block["type"] == "tool_result":
        content = block.get("content", "")
        if isinstance(content, str):
            block["content"] = content = [{"type": "text", "text": content}]
        yield from (part for part in content if part.get("type") == "text")


def newest_files(workspace: Workspace, calls: Sequence[bytes], count: int) -> list[str]:
    """Return the paths of at most *count* files, those that the model read last, newest first.

    Omits files in the scratch directory, and files that *calls* name (the tool calls that stay in the conversation).
    """
    files: list[str] = []
    for path in reversed(list(workspace.seen.known())):
        if len(files) == count:
            break
        inside = Path(path).is_relative_to(workspace.root)
        names = [path, str(Path(path).relative_to(workspace.root))] if inside else [path]
        is_named = any(msgspec.json.encode(name) in call for name in names for call in calls)
        if not Path(path).is_relative_to(workspace.scratch) and not is_named:
            files.append(path)
    return files


def used_skills(workspace: Workspace, calls: Sequence[bytes]) -> list[UsedSkill]:
    """Return the skills (instructions loaded on use) that the agent has loaded, newest first.

    Omits skills that were loaded by one of *calls*, the tool calls that stay in the conversation with their results.
    """
    read = (msgspec.json.decode(data, type=_Call) for data in calls)
    in_view = {call.input.get("skill") for call in read if call.name == SkillTool.name}
    return [used for used in reversed(workspace.skills.known()) if used.name not in in_view]


def read_skills(skills: Iterable[UsedSkill], settings: CompactionSettings) -> list[RestoredText]:
    """Return the texts of *skills* from their files, cut to the limits of *settings*; skip unreadable files. Blocks."""
    restored: list[RestoredText] = []
    room = settings.skills_total * TEXT_BYTES
    for used in skills:
        size = min(settings.skill * TEXT_BYTES, room)
        if size <= 0:
            break
        text = skill_text(used)
        if isinstance(text, FileProblem):
            continue  # deleted or no longer text
        content = text.encode()
        if len(content) > size:
            cut = content[:size].decode(errors="ignore")
            text = (cut.rpartition("\n")[0] or cut) + f"\n[... there is more; read {used.file}]"
        restored.append(RestoredText(name=used.name, shown=skill_block(used, text)))
        room -= min(len(content), size)
    return restored


class _Call(msgspec.Struct):
    name: str
    input: dict[str, Any]


def read_files(paths: Iterable[str], settings: CompactionSettings) -> list[RestoredText]:
    """Return the texts of files *paths*, cut to the limits of *settings*; skip unreadable or binary files. Blocks."""
    files: list[RestoredText] = []
    room = settings.files_total * TEXT_BYTES
    for path in paths:
        size = min(settings.file * TEXT_BYTES, room)
        if size <= 0:
            break
        try:
            with Path(path).open("rb") as file:
                content = file.read(size + 1)
            is_cut = len(content) > size
            # The incremental decoder ignores an incomplete character at the cut.
            text = codecs.getincrementaldecoder("utf-8")().decode(content[:size], final=not is_cut)
        except (OSError, UnicodeDecodeError):
            continue  # deleted or no longer text
        if is_cut:
            lines, newline, _ = text.rpartition("\n")
            text = (lines if newline else text) + "\n[... there is more; read the file]"
        files.append(RestoredText(name=path, shown=f'<file path="{path}">\n{text}\n</file>'))
        room -= len(content)
    return files
