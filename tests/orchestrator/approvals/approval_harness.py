"""The approvals of a session in one process, with real files and mail, without agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio
import trio.testing

from coterie.agents.events.agent_events import Event
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided, ApprovalRejected
from coterie.agents.permissions.types import Answer, Question, UserPrompter
from coterie.agents.root_link.approval_messages import PromptUser
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.approvals.approval_policy import ApprovalDecision
from coterie.orchestrator.approvals.service import ApprovalService, open_approvals
from coterie.orchestrator.approvals.store import APPROVALS, Approval, ApprovalSubject
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.session_directory import MAIN, SessionDirectory

Told = ApprovalAsked | ApprovalDecided | ApprovalRejected


async def settle() -> None:
    """Return when no task moves, and no thread works for one."""
    threads = trio.to_thread.current_default_thread_limiter()
    await trio.testing.wait_all_tasks_blocked()
    while threads.borrowed_tokens:
        await trio.sleep(0.001)
        await trio.testing.wait_all_tasks_blocked()


def plan(text: str = "1. Write a.txt.", **facts: Any) -> ApprovalSubject:
    """Plan request of the first incarnation of the builder to the lead."""
    return ApprovalSubject(
        **{"what": "plan", "agent": "builder", "incarnation": 1, "approver": "lead", "plan": text, **facts}
    )


def permission(command: str = "make", *, agent: str = "builder", incarnation: int = 1, **facts: Any) -> ApprovalSubject:
    """A call of the agent that the user must allow."""
    asked = PromptUser(
        **{"call": 0, "details": {}, "rules": [], "remedy": "a rule", **facts},
        agent=agent,
        tool="Bash",
        subject=command,
        reason="no rule",
    )
    return ApprovalSubject(what="permission", agent=agent, incarnation=incarnation, approver="human", question=asked)


def by_lead(id_: str, *, approve: bool = True, **facts: Any) -> ApprovalDecision:
    return ApprovalDecision(id=id_, approve=approve, agent=MAIN, **facts)


@attrs.define(eq=False, kw_only=True)
class ApprovalHarness:
    """The approval service of a root, with its mail and its events."""

    session: SessionDirectory
    office: SessionMail
    approvals: ApprovalService
    events: list[Event]
    judged: list[Approval] = attrs.field(factory=list)
    """Decisions on the requests, in order."""

    @property
    def approval_events(self) -> list[Told]:
        return [event for event in self.events if isinstance(event, Told)]

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Whose answers did not count, and why."""
        return [(event.by, event.reason) for event in self.approval_events if isinstance(event, ApprovalRejected)]

    async def ask(self, claim: ApprovalSubject) -> None:
        """Wait for the decision on *claim*, and store it."""
        self.judged.append(await self.approvals.request(claim, self.session.project))

    async def ask_and_crash(self, claim: ApprovalSubject) -> None:
        """Make the request, and cancel it before an answer."""
        async with trio.open_nursery() as nursery:
            await self.wait_for(claim, nursery)
            nursery.cancel_scope.cancel()

    async def wait_for(self, claim: ApprovalSubject, nursery: trio.Nursery) -> None:
        """Make the request in *nursery*, and return when all tasks are blocked."""
        nursery.start_soon(self.ask, claim)
        await settle()

    def path(self, id_: str) -> Path:
        return self.session.directory / APPROVALS / f"{id_}.json"

    def kept(self, id_: str) -> Approval:
        return msgspec.convert(msgspec.json.decode(self.path(id_).read_bytes())["approval"], Approval)

    def forge(self, id_: str, **facts: Any) -> None:
        """Change the JSON of the file, as a process without the key could."""
        content = msgspec.json.decode(self.path(id_).read_bytes())
        content["approval"] |= facts
        self.path(id_).write_bytes(msgspec.json.encode(content))

    async def mail(self) -> list[Envelope]:
        """Take and acknowledge the messages in the lead's mailbox."""
        incarnation = self.office.roster.members()[MAIN].incarnation
        async with self.office.files.open_inbox(MAIN, incarnation) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge([envelope.id for envelope in envelopes])
        return envelopes


@asynccontextmanager
async def open_approval_harness(
    session: SessionDirectory, *, user: UserPrompter | None = None, has_lead: bool = True
) -> AsyncIterator[ApprovalHarness]:
    """Approvals as the next root of *session* opens them; its *user* sits at the terminal."""
    told: list[Event] = []
    with trio.fail_after(10), SessionMail.open(session, Clock(), SessionKeys.new()) as office:
        if has_lead:
            await office.roster.join(MAIN)
        sender = StatusPublisher(office, told.append).sender
        approvals = await open_approvals(office, sender, told.append, user=user)
        yield ApprovalHarness(session=session, office=office, approvals=approvals, events=told)


@attrs.define(eq=False)
class Person:
    """A user at the terminal whose answers the test supplies."""

    questions: list[Question] = attrs.field(factory=list)
    _answer: trio.MemorySendChannel[Answer] = attrs.field(init=False)
    _heard: trio.MemoryReceiveChannel[Answer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._answer, self._heard = trio.open_memory_channel[Answer](1)

    async def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        return await self._heard.receive()

    def answer(self, answer: Answer) -> None:
        """Answer the question that is asked, or will be."""
        self._answer.send_nowait(answer)
