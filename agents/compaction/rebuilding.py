"""The conversation as it is after a compaction: a summary and what goes with it, then what stays."""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from coterie.agents.agent import Agent
from coterie.agents.compaction.job import Job
from coterie.agents.compaction.plan import Plan
from coterie.agents.compaction.restoring import RestoredFile, RestoredSkill
from coterie.agents.conversation import text_block
from coterie.agents.conversation.records import Part, Way
from coterie.agents.prompt import render
from coterie.agents.tokens import estimate_block
from coterie.memory.clearing import cleared
from coterie.memory.compaction.cut import Messages
from coterie.memory.compaction.readable import readable
from coterie.memory.compaction.words import fitting_words, missing_words
from coterie.memory.ports import Segment
from coterie.memory.rewriting import THINKING, Message

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
class Material:
    """What goes with a summary."""

    context: str = ""
    """What an agent is told before its task."""
    standing: str = ""
    words: Sequence[str] = ()
    words_room: int
    """Tokens for them."""
    skills: Sequence[RestoredSkill] = ()
    files: Sequence[RestoredFile] = ()
    where: str
    """The transcript."""


@attrs.frozen(kw_only=True)
class Rebuilt:
    """A conversation that could take the place of the one there is."""

    messages: Sequence[Message]
    parts: Sequence[Part]
    """What the blocks of the message are that is new."""
    at_message: int
    """Where it stands."""
    words_added: int
    skills: Sequence[RestoredSkill]
    files: Sequence[RestoredFile]
    tokens: int
    """An estimate, of all of it."""


def rebuild(job: Job, plan: Plan, material: Material) -> Rebuilt:
    """What *plan* makes of the conversation. Nothing has changed yet."""
    before = _before(job.messages[: plan.first])
    staying = [segment for message in job.messages[plan.start :] for segment in message]
    return assemble(job, before, cleared(staying, has_changed=True), plan, material)


def assemble(job: Job, before: Sequence[Message], after: Sequence[Message], plan: Plan, material: Material) -> Rebuilt:
    """The conversation with *before* and *after* around what *plan* and *material* say."""
    missing = missing_words(material.words, "\n".join([plan.summary, *_said([*before, *after])]))
    blocks = _blocks(plan, material, missing)
    messages = [*before, ("user", [text_block(text) for _, text in blocks]), *after]
    return Rebuilt(
        messages=messages,
        parts=[part for part, _ in blocks],
        at_message=len(before),
        words_added=len(missing),
        skills=material.skills,
        files=material.files,
        tokens=_fixed(job.agent) + tokens_of(messages),
    )


def earlier_summaries(messages: Iterable[Sequence[Segment]]) -> list[str]:
    """What compactions before have left in *messages*, without its frame."""
    texts = (readable(segment.data) for message in messages for segment in message if segment.block_type == "text")
    framed = (text for text in texts if text.startswith(_OPENS) and text.endswith(_CLOSES))
    return [text.removesuffix(_CLOSES).partition("\n\n")[2].strip() for text in framed]


def tokens_of(messages: Sequence[Message]) -> int:
    """An estimate."""
    return sum(estimate_block(data) for _, blocks in messages for data in blocks)


def _blocks(plan: Plan, material: Material, missing: Sequence[str]) -> list[tuple[Part, str]]:
    blocks: list[tuple[Part, str]] = []
    if material.context and not plan.first:
        blocks.append(("context", material.context))
    blocks.append(("summary", render("compacted", origin=_ORIGINS[plan.by], summary=plan.summary)))
    if missing:
        shown = fitting_words(missing, material.words_room, material.where)
        said = "\n\n".join(f"<user-message>\n{text}\n</user-message>" for text in shown)
        blocks.append(("words", render("compacted_words", messages=said)))
    if material.standing:
        blocks.append(("standing", render("compacted_standing", sections=material.standing)))
    if material.skills:
        skills = "\n\n".join(skill.shown() for skill in material.skills)
        blocks.append(("skills", render("compacted_skills", skills=skills)))
    if material.files:
        files = "\n\n".join(file.shown() for file in material.files)
        blocks.append(("files", render("compacted_files", files=files)))
    return blocks


def _said(messages: Iterable[Message]) -> Iterator[str]:
    """The texts that the user's messages hold; a tool's result may quote the human, and is no message of theirs."""
    for role, blocks in messages:
        if role == "user":
            yield from (readable(data) for data in blocks if data.startswith(_TEXT))


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


def _as_it_was(message: Iterable[Segment]) -> Message:
    segments = list(message)
    role = segments[0].role
    assert role is not None
    return role, [segment.data for segment in segments]
