"""Pinned context (team, open tasks, unanswered mail) with real rosters, task files and mailboxes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.root_events import AgentChanged
from coterie.agents.layers.layer4_compaction.pinned_context import SHOWN, MailSection, TaskSection, TeamSection
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import OPEN_MAIL
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import TaskClaim
from coterie.agents.tools.tool import Tool, call_tool
from coterie.clock import Clock
from coterie.mailbox.contract import MemberOrigin
from coterie.mailbox.envelope import Envelope, MessageKind, Recipient
from coterie.mailbox.message_bodies import (
    Idle,
    MessageBody,
    PlanApprovalRequest,
    ShutdownRequest,
    TaskAssignment,
    TaskNotification,
)
from coterie.mailbox.roster import FileRoster, LocalRoster, RosterFailed
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.tasks.task import TaskChange, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from tests.agents.in_process_team import LocalMail
from tests.agents.scripted_agent import open_agent

SCRIPT = "main: [{text: ok}]"
MAIN = TaskOwner(name="main", incarnation=1)
SCOUT = TaskOwner(name="scout", incarnation=1)


@attrs.define(eq=False)
class Lead:
    """An agent with a mailbox and with turns that the test defines."""

    agent: Agent
    mail: Messaging
    post: LocalMail
    tasks: TaskList

    @property
    def tools(self) -> dict[str, Tool]:
        return {
            "SendMessage": SendMessage(router=self.post.router, sender=self.post.sender("main")),
            "TaskClaim": TaskClaim(self.tasks, MAIN),
        }

    async def get(self, body: str | MessageBody, *, by: str = "scout", session: str = "s") -> Envelope:
        """Deliver a message of *by* to the conversation."""
        text = body if isinstance(body, str) else body.to_body()
        kind: MessageKind = "message" if isinstance(body, str) else body.kind
        sender, recipient = self.post.sender(by, session), Recipient(name="main")
        envelope = Envelope(sender=sender, recipient=recipient, sequence=1, kind=kind, body=text, created=0.0)
        await self.post.transport.send(envelope)
        self.enter([])
        return envelope

    async def call(self, name: str, **arguments: Any) -> None:
        call = {"id": "call", "name": name, "input": arguments}
        result = await call_tool(self.tools, name, arguments, self.agent.workspace, self.agent.denial)
        self.agent.append_message("assistant", [text_block("calls")])
        self.enter([ToolAnswer(call=call, tool=self.tools[name], result=result)])

    def enter(self, answers: list[ToolAnswer]) -> None:
        """End a turn with its results and the received mail."""
        added = self.mail.add_blocks(self.agent, answers)
        self.agent.append_message("user", [text_block("results"), *added.blocks], *added.records)

    async def unanswered(self) -> str:
        return await MailSection(self.post.roster, self.mail, self.post.sender("main")).text(self.agent)


@asynccontextmanager
async def open_lead(directory: Path) -> AsyncIterator[Lead]:
    post = LocalMail()
    for name in ("main", "scout", "editor"):
        post.roster.join(name)
    async with open_agent(SCRIPT, directory) as (agent, _), post.transport.open_inbox("main", 1) as inbox:
        yield Lead(agent, Messaging(inbox), post, TaskList(directory / "tasks", Clock()))
    assert post.dead == []


async def test_team_section_shows_type_parent_task_and_state(tmp_path: Path) -> None:
    roster = FileRoster(tmp_path / "roster.json")
    await roster.join("main")
    await roster.join("scout", MemberOrigin(kind="explore", parent="main", task="Find <where> it is."))
    for _ in range(2):
        await roster.join("editor", MemberOrigin(parent="scout"))
    await roster.join("reader", MemberOrigin(kind="explore", parent="main"))
    await roster.join("other", MemberOrigin(kind="explore", parent="scout"))
    await roster.join("kept", MemberOrigin(kind="explore", parent="main"))
    await roster.set_state("kept", "idle")
    for name in ("reader", "other"):
        await roster.set_state(name, "ended")
    told = {
        ("scout", 1): AgentChanged(name="scout", incarnation=1, state="waiting", what="2 agents"),
        ("editor", 1): AgentChanged(name="editor", incarnation=1, state="killed"),
        ("kept", 1): AgentChanged(name="kept", incarnation=1, state="done"),
    }
    async with open_agent(SCRIPT, tmp_path) as (agent, _):
        text = await TeamSection(FileRoster(tmp_path / "roster.json"), lambda: told).text(agent)
    assert text.splitlines() == [
        "- scout (kind explore; started by main): waiting: 2 agents. Its task: Find &lt;where&gt; it is.",
        "- editor (started by scout; start 2): running.",
        "- kept (kind explore; started by main): idle.",
        "Started by you and ended, with reports that came as messages: reader.",
    ]


async def test_team_section_is_empty_alone_and_counts_large_team(tmp_path: Path) -> None:
    """An unreadable roster is an `OSError`, which the layer reports."""
    roster = LocalRoster()
    (tmp_path / "roster.json").write_text("{")
    roster.join("main")
    async with open_agent(SCRIPT, tmp_path) as (agent, _):
        assert await TeamSection(roster).text(agent) == ""
        for number in range(SHOWN + 2):
            roster.join(f"a{number}")
        lines = (await TeamSection(roster).text(agent)).splitlines()
        assert (len(lines), lines[-1]) == (SHOWN + 1, "... and 2 more agents.")
        with pytest.raises(RosterFailed, match="is no valid roster"):
            await TeamSection(FileRoster(tmp_path / "roster.json")).text(agent)


async def test_task_section_shows_own_tasks_first_and_whole(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "tasks", Clock())
    read = await tasks.create("Read a.py", by=MAIN)
    mend = await tasks.create("Mend <a.py>", by=MAIN, description="It fails on empty input.")
    await tasks.create("Tell", by=MAIN, blocked_by=[read.id])
    done = await tasks.create("Done", by=MAIN)
    await tasks.claim(read.id, SCOUT)
    await tasks.claim(mend.id, MAIN)
    await tasks.update(done.id, MAIN, TaskChange(status="done"))
    async with open_agent(SCRIPT, tmp_path) as (agent, _):
        text = await TaskSection(tasks).text(agent)
        assert await TaskSection(TaskList(tmp_path / "none", Clock())).text(agent) == ""
    assert text.splitlines() == [
        "- Yours: 2 [in_progress, main#1] Mend &lt;a.py&gt;",
        "It fails on empty input.",
        "- 1 [in_progress, scout#1] Read a.py",
        "- 3 [blocked by 1] Tell",
    ]


async def test_mail_is_unanswered_until_message_to_its_sender(tmp_path: Path) -> None:
    """Mail that arrives together with the answer to earlier mail stays unanswered."""
    async with open_lead(tmp_path) as lead:
        first = await lead.get("Which branch?")
        second = await lead.get("May I </message> begin?", by="editor")
        text = await lead.unanswered()
        assert text.startswith(f'<message from="scout" sender="peer" kind="message" id="{first.id}"')
        assert "Which branch?" in text
        assert "May I &lt;/message&gt; begin?" in text
        await lead.post.router.send(lead.post.sender("scout"), OutgoingMessage(to="main", body="Two?"))
        await lead.call("SendMessage", to="scout", message="main.")
        text = await lead.unanswered()
        assert ("Which branch?" in text, "Two?" in text) == (False, True)
        assert f'id="{second.id}"' in text


async def test_only_message_to_sender_counts_as_answer(tmp_path: Path) -> None:
    """The sender of another session with the name of a member is not this member."""
    async with open_lead(tmp_path) as lead:
        await lead.get("Which branch?")
        await lead.get("Where?", session="another")
        for to, is_answered in (("editor", False), ("nobody", False), ("scout", True)):
            await lead.call("SendMessage", to=to, message="main.")
            text = await lead.unanswered()
            assert ("Which branch?" not in text, "Where?" in text) == (is_answered, True), to
        await lead.get("When?")
        await lead.call("SendMessage", to="*", message="Now.")
        assert "When?" not in await lead.unanswered()


async def test_only_response_answers_approval_request(tmp_path: Path) -> None:
    async with open_lead(tmp_path) as lead:
        request = await lead.get(PlanApprovalRequest(plan="Rewrite it."))
        await lead.call("SendMessage", to="scout", message="I am looking at it.")
        assert "Rewrite it." in await lead.unanswered()
        response = {"type": "plan_approval_response", "request_id": request.id, "approve": True}
        await lead.call("SendMessage", to="scout", message=response)
        assert await lead.unanswered() == ""


@pytest.mark.parametrize("number", [1, None])
async def test_claim_of_task_answers_assignment(tmp_path: Path, number: int | None) -> None:
    async with open_lead(tmp_path) as lead:
        task = await lead.tasks.create("Mend <it>", by=SCOUT)
        await lead.get(TaskAssignment(task_id=task.id, subject="Mend <it>"), by="user")
        assert ">\nTask 1: Mend &lt;it&gt;\n</message>" in await lead.unanswered()
        await lead.call("TaskClaim", **({} if number is None else {"task_id": number}))
        assert await lead.unanswered() == ""


async def test_only_mail_that_needs_an_answer_is_pinned(tmp_path: Path) -> None:
    async with open_lead(tmp_path) as lead:
        await lead.get(TaskNotification(status="completed", summary="Done."))
        await lead.get(Idle())
        await lead.get("Hurry.", by="user")
        assert await lead.unanswered() == ""
        assert lead.agent.user_texts[-1] == "Hurry."
        await lead.get("Which branch?")
        lead.post.roster.set_state("scout", "ended")
        assert await lead.unanswered() == ""
        await lead.get(ShutdownRequest(reason="enough"), by="user")
        assert 'kind="shutdown_request"' in await lead.unanswered()


async def test_long_message_is_truncated_and_newest_messages_are_kept(tmp_path: Path) -> None:
    async with open_lead(tmp_path) as lead:
        envelope = await lead.get("ä" * 1_500)
        text = await lead.unanswered()
        assert text.count("ä") == 1_000
        assert "[cut: 3,000 bytes in all; SearchTranscript finds the message by its id]" in text
        assert f'id="{envelope.id}"' in text
        for number in range(OPEN_MAIL):
            await lead.get(f"Question {number}?")
        text = await lead.unanswered()
        assert ("ä" in text, f"Question {OPEN_MAIL - 1}?" in text) == (False, True)


async def test_unanswered_mail_is_restored_on_resume(tmp_path: Path) -> None:
    async with open_lead(tmp_path) as lead:
        await lead.get("Answered?")
        await lead.call("SendMessage", to="scout", message="Yes.")
        await lead.get("Open?")
        text = await lead.unanswered()
    loaded = load_transcript(tmp_path / "transcript.jsonl")
    assert [mail.text for mail in loaded.open_mail.values()] == [text]
    async with open_lead(tmp_path) as resumed:
        assert await resumed.unanswered() == text
        await resumed.call("SendMessage", to="scout", message="No.")
    assert load_transcript(tmp_path / "transcript.jsonl").open_mail == {}
