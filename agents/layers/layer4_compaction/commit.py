"""Commit of a compaction: the new epoch is recorded with its boundary and reported."""

from itertools import chain

import trio

from coterie.agents.events.layer_events import Compacted
from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan
from coterie.agents.layers.layer4_compaction.rebuild import RebuiltConversation
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.cache_markers import MarkerHistory
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript_records import Boundary
from coterie.memory.compaction.fidelity import TURNS, find_lost_terms
from coterie.memory.compaction.summary_text import block_text, message_texts

LISTED = 200
"""Words that an event lists as dropped."""
LOOKED_INTO = 8_000
"""Characters of a message that are searched for them: a listing of a thousand files is no loss of each of them."""


def commit_compaction(
    job: CompactionJob,
    plan: CompactionPlan,
    rebuilt: RebuiltConversation,
    mail: Messaging | None,
    *,
    failures: int,
    began: float,
) -> Compacted:
    """Put *rebuilt* in the place of the conversation, and tell of it. Raises `OSError` when it cannot be recorded.

    *began* is when the job did, on trio's clock. Mail that waits comes right behind, in a message and a record of its
    own: a crash in between delivers it later.
    """
    agent, gone = job.agent, job.messages[plan.first : plan.start]
    unacknowledged = [] if mail is None else list(mail.unacknowledged)
    agent.conversation.rewrite(rebuilt.messages)
    _carry_markers(agent.conversation, plan.first)
    boundary = Boundary(
        trigger=job.trigger,
        by=plan.by,
        turn=agent.turn,
        tokens_before=job.tokens,
        tokens_after=rebuilt.tokens,
        left=len(gone),
        kept=len(job.messages) - len(gone),
        parts=list(rebuilt.parts),
        at_message=rebuilt.at_message,
        mail=[str(id_) for id_ in unacknowledged],
        failures=failures,
    )
    agent.transcript.record(agent.conversation, boundary=boundary)
    agent.announced.append("compaction")
    told = _compacted_event(job, plan, rebuilt, began)
    agent.emit(told)
    _deliver(agent, mail)
    return told


def _carry_markers(conversation: Conversation, first: int) -> None:
    """Where the first messages have stayed, the cache still ends with the last of them that was the user's."""
    if not first:
        return
    prefix, previous, number = conversation.prefix, None, 0
    for index in range(prefix.prompt_length, len(prefix)):
        number += prefix[index].opens_message
        if number > first:
            break
        if prefix[index].role == "user" and prefix[index].is_markable:
            previous = index
    conversation.marks = MarkerHistory(previous=previous)


def _compacted_event(job: CompactionJob, plan: CompactionPlan, rebuilt: RebuiltConversation, began: float) -> Compacted:
    gone = job.messages[plan.first : plan.start]
    before = (text[:LOOKED_INTO] for text in message_texts(chain.from_iterable(gone[-2 * TURNS :])))
    after = "\n".join(block_text(data) for _, blocks in rebuilt.messages for data in blocks)
    lost = find_lost_terms(before, after)
    return Compacted(
        trigger=job.trigger,
        by=plan.by,
        passed_over=dict(plan.passed_over),
        tokens_before=job.tokens,
        tokens_after=rebuilt.tokens,
        left=len(gone),
        kept=len(job.messages) - len(gone),
        words=len(job.agent.user_texts),
        words_added=rebuilt.user_texts_added,
        restored=[file.path for file in rebuilt.files],
        skills=[skill.used.name for skill in rebuilt.skills],
        dropped=lost[:LISTED],
        dropped_count=len(lost),
        seconds=round(trio.current_time() - began, 6),
        cost_usd=format(plan.cost, "f"),
        where=str(job.agent.transcript.path),
    )


def _deliver(agent: Agent, mail: Messaging | None) -> None:
    """Put mail that has come behind what the model is to answer next; an idle agent is woken by it as always."""
    last = agent.conversation.prefix.last
    if mail is not None and last is not None and last.role == "user":
        added = mail.add_blocks(agent, ())
        if added.blocks:
            agent.append_message("user", added.blocks, *added.records)
