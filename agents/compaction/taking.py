"""The moment of a compaction: the new epoch begins, is recorded with its boundary, and is told."""

from itertools import chain

import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.job import Job
from coterie.agents.compaction.plan import Plan
from coterie.agents.compaction.rebuilding import Rebuilt
from coterie.agents.conversation import Conversation, Marks
from coterie.agents.conversation.records import Boundary
from coterie.agents.events import Compacted
from coterie.agents.layers.mail import DeliverMail
from coterie.memory.compaction.fidelity import TURNS, dropped
from coterie.memory.compaction.readable import readable, texts_of

LISTED = 200
"""Words that an event lists as dropped."""
LOOKED_INTO = 8_000
"""Characters of a message that are searched for them: a listing of a thousand files is no loss of each of them."""


def take(job: Job, plan: Plan, rebuilt: Rebuilt, mail: DeliverMail | None, *, failures: int, began: float) -> Compacted:
    """Put *rebuilt* in the place of the conversation, and tell of it. Raises `OSError` when it cannot be recorded.

    *began* is when the job did, on trio's clock. Mail that waits comes right behind, in a message and a record of its
    own: a crash in between delivers it later.
    """
    agent, gone = job.agent, job.messages[plan.first : plan.start]
    unacknowledged = [] if mail is None else list(mail.unacknowledged)
    agent.conversation.rewrite(rebuilt.messages)
    _keep_marks(agent.conversation, plan.first)
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
    told = _told(job, plan, rebuilt, began)
    agent.tell(told)
    _deliver(agent, mail)
    return told


def _keep_marks(conversation: Conversation, first: int) -> None:
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
    conversation.marks = Marks(previous=previous)


def _told(job: Job, plan: Plan, rebuilt: Rebuilt, began: float) -> Compacted:
    gone = job.messages[plan.first : plan.start]
    before = (text[:LOOKED_INTO] for text in texts_of(chain.from_iterable(gone[-2 * TURNS :])))
    after = "\n".join(readable(data) for _, blocks in rebuilt.messages for data in blocks)
    lost = dropped(before, after)
    return Compacted(
        trigger=job.trigger,
        by=plan.by,
        passed_over=dict(plan.passed_over),
        tokens_before=job.tokens,
        tokens_after=rebuilt.tokens,
        left=len(gone),
        kept=len(job.messages) - len(gone),
        words=len(job.agent.words),
        words_added=rebuilt.words_added,
        restored=[file.path for file in rebuilt.files],
        skills=[skill.used.name for skill in rebuilt.skills],
        dropped=lost[:LISTED],
        dropped_count=len(lost),
        seconds=round(trio.current_time() - began, 6),
        cost_usd=format(plan.cost, "f"),
        where=str(job.agent.transcript.path),
    )


def _deliver(agent: Agent, mail: DeliverMail | None) -> None:
    """Put mail that has come behind what the model is to answer next; an idle agent is woken by it as always."""
    last = agent.conversation.prefix.last
    if mail is not None and last is not None and last.role == "user":
        added = mail.add(agent, ())
        if added.blocks:
            agent.say("user", added.blocks, *added.records)
