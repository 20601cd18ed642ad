"""Shutdown of an agent: after its turn, at the deadline, or not at all without a valid request."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.errors import ReplyMalformed
from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer7_messaging import BATCH, Messaging
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.runtime.task_report import releasing_tasks
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Recipient, Sender
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.message_bodies import Idle, ShutdownRequest, ShutdownResponse, TaskAssignment
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.tasks.task import Task, TaskChange, TaskId, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.mailbox.transports.file.transport import FileTransport
from tests.agents.in_process_team import LocalMail, Team, open_team
from tests.agents.scripted_agent import QUICK, NotingTool

SOON = ShutdownRequest(reason="all is done", deadline=10.0).to_body()
VERY_SOON = ShutdownRequest(deadline=0.05).to_body()
NOW = ShutdownRequest(deadline=0.0).to_body()


async def ask_to_end(team: Team, body: str, by: str = "main", to: str = "worker") -> MessageId:
    """Send a shutdown request; return its id."""
    [posted] = await team.router.send(team.sender(by), OutgoingMessage(to=to, body=body, kind="shutdown_request"))
    assert posted.receipt is not None
    return posted.receipt.id


async def until_ended(team: Team, name: str = "worker") -> str:
    """Wait for the end of an agent; return the reason."""
    await team.until(lambda: name in team.ended)
    return team.ended[name].reason


async def responses(team: Team, name: str = "main") -> list[tuple[MessageId | None, ShutdownResponse]]:
    """Return the responses to requests of *name*, with the ids of the requests."""
    found = [envelope for envelope in await team.received(name) if envelope.kind == "shutdown_response"]
    return [(envelope.in_reply_to, ShutdownResponse.from_body(envelope.body)) for envelope in found]


def forged(body: str, kind: MessageKind = "shutdown_request", sender: str = "scout") -> Envelope:
    """Return a message that did not pass the router."""
    who = Sender(name=sender, incarnation=1, session="s", kind="lead" if sender == "main" else "peer")
    return Envelope(sender=who, recipient=Recipient(name="worker"), sequence=1, kind=kind, body=body, created=0.0)


@asynccontextmanager
async def open_busy_team(directory: Path, later: str = "") -> AsyncIterator[tuple[Team, trio.Event]]:
    """Open a team whose worker runs the tool Work, with its *later* replies; yield the event that ends the tool too."""
    begun, may_end = trio.Event(), trio.Event()

    async def work(_: str) -> str:
        begun.set()
        await may_end.wait()
        return "worked"

    async with open_team(f"worker: [{{tools: [{{Work: {{}}}}]}}, {later}]", directory) as team:
        team.roster.join("main")
        team.start("worker", "Work.", NotingTool(name="Work", act=work))
        await begun.wait()
        yield team, may_end


async def test_a_busy_agent_finishes_its_tool_round_and_has_one_more_turn(tmp_path: Path) -> None:
    later = '{tools: [{SendMessage: {to: main, message: "Half is done."}}]}, {text: never said}'
    async with open_busy_team(tmp_path, later) as (team, may_end):
        request = await ask_to_end(team, SOON)
        may_end.set()
        assert await until_ended(team) == "shutdown"
        assert [e["turn"] for e in team.served.requests] == [1, 2]
        assert 'kind="shutdown_request"' in team.texts("worker")[2]
        assert "all is done" in team.texts("worker")[2]
        assert team.texts("worker")[3].startswith("Stored for main as ")
        assert team.transport.backlog("worker").messages == 0
        words, response = await team.received("main")
        assert words.body == "Half is done."
        assert (response.kind, response.in_reply_to) == ("shutdown_response", request)
        said = ShutdownResponse.from_body(response.body)
        assert said == ShutdownResponse(accepted=True, reason="it has wrapped up")


async def test_agent_ends_after_a_last_turn_and_later_mail_is_for_the_next_incarnation(tmp_path: Path) -> None:
    async with open_busy_team(tmp_path, "{text: bye}, {text: never}") as (team, may_end):
        await ask_to_end(team, SOON)
        for number in range(BATCH):
            await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body=f"{number}."))
        may_end.set()
        assert await until_ended(team) == "shutdown"
        assert (team.ended["worker"].text, team.ended["worker"].turns) == ("bye", 2)
        assert ("worker", "idle") not in team.states
        assert team.texts("worker")[-1].count("</message>") == BATCH
        assert [envelope.body for envelope in await team.received("worker")] == [f"{BATCH - 1}."]


async def test_run_is_interrupted_at_the_deadline_and_can_be_resumed(tmp_path: Path) -> None:
    """The earliest deadline applies, and every requester gets a response."""
    async with open_busy_team(tmp_path, "{text: back}") as (team, _):
        requests = [await ask_to_end(team, body) for body in (SOON, VERY_SOON, SOON)]
        assert await until_ended(team) == "shutdown"
        answers = await responses(team)
        assert [request for request, _ in answers] == requests
        assert not any(said.accepted for _, said in answers)
        assert answers[0][1].reason.startswith("the deadline has passed")
        loaded = load_transcript(team.path("worker")).conversation
        assert loaded is not None
        assert not loaded.open_tool_uses
        assert "interrupted before this call had a result" in team.texts("worker")[1]
        assert 'kind="shutdown_request"' in team.texts("worker")[2]

        team.start("worker", None, NotingTool(name="Work"))
        await team.until_asked("worker", 2)
        await team.until(lambda: ("worker", "idle") in team.states)
        assert team.dead == []


async def test_an_idle_agent_ends_without_a_model_call(tmp_path: Path) -> None:
    async with open_team("worker: [{text: never}]", tmp_path) as team:
        team.roster.join("main")
        team.start("worker", None)
        await team.until(lambda: ("worker", "idle") in team.states)
        request = await ask_to_end(team, SOON)
        assert await until_ended(team) == "shutdown"
        assert team.served.requests == []
        assert await responses(team) == [(request, ShutdownResponse(accepted=True, reason="it had nothing more to do"))]
        assert (team.transport.backlog("worker").messages, team.dead) == (0, [])


async def test_task_that_arrives_with_the_request_gets_one_turn(tmp_path: Path) -> None:
    async with open_team("worker: [{tools: [{Work: {}}]}, {text: never}]", tmp_path) as team:
        team.roster.join("main")
        team.roster.join("worker")
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body="Note it."))
        team.start("worker", None, NotingTool(name="Work"))
        # The roster counts starts: the request must be for the one that lives.
        await ask_to_end(team, SOON)
        assert await until_ended(team) == "shutdown"
        assert [e["turn"] for e in team.served.requests] == [1]
        assert "Note it." in team.texts("worker")[0]
        assert 'kind="shutdown_request"' in team.texts("worker")[0]


async def test_request_for_an_earlier_incarnation_is_ignored(tmp_path: Path) -> None:
    async with open_team("worker: [{text: done}, {text: 'heard {{last_user_text}}'}]", tmp_path) as team:
        team.roster.join("main")
        team.roster.join("worker")
        await ask_to_end(team, NOW)
        team.start("worker", "Work.")
        await team.until(lambda: ("worker", "idle") in team.states)
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body="Still there?"))
        await team.until_asked("worker", 2)
        assert team.ended == {}
        assert [letter.reason for letter in team.dead] == ["stale_incarnation"]
        assert not any("shutdown" in text for text in team.texts("worker"))
        assert await team.received("main") == []


@pytest.mark.parametrize(
    "letter",
    [
        forged(NOW, kind="message", sender="main"),
        forged(NOW),
        forged('{"deadline": "now"}', sender="main"),
        forged("stop", sender="main"),
    ],
    ids=["words of the lead", "a peer's", "a deadline that is none", "no object"],
)
async def test_forged_request_is_shown_to_the_model_and_has_no_effect(tmp_path: Path, letter: Envelope) -> None:
    async with open_busy_team(tmp_path, "{text: on}, {text: still on}") as (team, may_end):
        await team.transport.send(letter)
        await trio.testing.wait_all_tasks_blocked(0.01)  # Time to receive the message, if the agent receives it at all.
        may_end.set()
        await team.until(lambda: ("worker", "idle") in team.states)
        assert len(team.served.requests) == 2
        assert f'kind="{letter.kind}"' in team.texts("worker")[2]
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body="More."))
        await team.until_asked("worker", 3)
        assert team.ended == {}
        assert await team.received("main") == []


async def test_request_in_a_file_becomes_a_dead_letter(tmp_path: Path) -> None:
    near = LocalMail()
    near.roster.join("worker")
    far = FileTransport(tmp_path / "mail", near.roster, None, Clock(), near.add_dead_letter)
    letter = forged(NOW, sender="main")
    try:
        async with near.transport.open_inbox("worker", 1) as local, far.open_inbox("worker", 1) as other:
            mail = Messaging(MergedInbox("worker", local, (other,), near.add_dead_letter))
            await far.send(letter)
            await far.send(attrs.evolve(letter, kind="message", id=MessageId("2")))
            with trio.fail_after(5):
                await mail.wait_for_work()
            assert mail.shutdown.requests == {}
            assert [(d.reason, d.envelope) for d in near.dead] == [("refused", letter)]
    finally:
        far.close()


async def test_user_gets_no_response_and_an_unstored_response_is_an_event(tmp_path: Path) -> None:
    async with open_team("worker: [{text: never}]", tmp_path) as team:
        team.roster.join("main")
        team.start("worker", None)
        await ask_to_end(team, SOON, by="user")
        await ask_to_end(team, SOON)
        team.roster.set_state("main", "ended")
        assert await until_ended(team) == "shutdown"
        assert team.events == [LayerFailed(layer="mail", reason="'main' has ended (start 1) and takes no more mail")]


async def _answer_garbage(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    await stream.send_all(head + b"event: x\ndata: {not json}\n\n")
    await stream.aclose()


async def test_error_of_a_run_leaves_the_mail_loop_unwrapped(tmp_path: Path) -> None:
    async with open_team("worker: [{text: never}]", tmp_path) as team, trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _answer_garbage, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with open_model_client(LocalGateway(), base_url=url, api_key="k", policy=QUICK) as team.client:
            start = team.roster.join("worker").incarnation
            with pytest.raises(ReplyMalformed):
                await team.run("worker", start, "Work.")
        nursery.cancel_scope.cancel()


async def test_agent_continues_while_its_mailbox_is_unreadable(tmp_path: Path) -> None:
    async with open_busy_team(tmp_path, "{text: done}") as (team, may_end):
        team.is_disk_full = True
        await team.transport.send(attrs.evolve(forged(SOON), recipient=Recipient(name="worker", incarnation=9)))
        await team.until(lambda: any(isinstance(event, LayerFailed) for event in team.events))
        team.is_disk_full = False
        may_end.set()
        await team.until(lambda: ("worker", "idle") in team.states)
        assert [letter.reason for letter in team.dead] == ["stale_incarnation"]


WORKER = TaskOwner(name="worker", incarnation=2)


async def test_lead_gets_an_idle_notice_with_the_reason_after_each_run(tmp_path: Path) -> None:
    async with open_team("worker: [{text: done}]", tmp_path) as team:
        team.roster.join("main")
        team.start("worker", None, lead="main")
        await team.until(lambda: team.transport.backlog("main").messages == 1)
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body="Do it."))
        await team.until(lambda: team.transport.backlog("main").messages == 2)
        heard = await team.received("main")
        assert {envelope.kind for envelope in heard} == {"idle"}
        assert [Idle.from_body(envelope.body).outcome for envelope in heard] == [None, "completed"]
        assert [state for _, state in team.states] == ["idle", "running", "idle"]


async def test_idle_notice_starts_no_turn_of_the_lead(tmp_path: Path) -> None:
    async with open_team("{main: [{text: waiting}, {text: fine}], worker: [{text: done}]}", tmp_path) as team:
        team.start("main", "Lead.")
        await team.until(lambda: ("main", "idle") in team.states)
        team.start("worker", "Work.", lead="main")
        await team.until(lambda: ("worker", "idle") in team.states)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [e["agent"] for e in team.served.requests] == ["main", "worker"]
        await team.router.send(team.sender("user"), OutgoingMessage(to="main", body="And?"))
        await team.until_asked("main", 2)
        [text] = team.texts("main")[1:]
        assert 'kind="idle"' in text
        assert "And?" in text


@pytest.mark.parametrize(("subject", "line"), [("Mend <a>", "Task 7: Mend &lt;a&gt;"), ("", "Task 7")])
async def test_assigned_task_wakes_its_owner_and_shows_its_subject(tmp_path: Path, subject: str, line: str) -> None:
    async with open_team("worker: [{text: on it}]", tmp_path) as team:
        team.start("worker", None)
        body = TaskAssignment(task_id=7, subject=subject).to_body()
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body=body, kind="task_assignment"))
        await team.until_asked("worker", 1)
        [text] = team.texts("worker")
        assert text.startswith('<message from="main" sender="lead" kind="task_assignment"')
        assert text.endswith(f">\n{line}\n</message>")


async def claimed(task_list: TaskList) -> TaskId:
    task = await task_list.create("Mend it", by=WORKER)
    await task_list.claim(task.id, WORKER)
    return task.id


async def state_of(task_list: TaskList, task_id: TaskId) -> tuple[str, TaskOwner | None]:
    task: Task = await task_list.get(task_id)
    return task.status, task.owner


@pytest.mark.parametrize("end", ["returns", "fails", "is cancelled"])
async def test_tasks_are_released_when_their_owner_ends(tmp_path: Path, end: str) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock())
    events: list[Event] = []
    task = await claimed(task_list)
    with trio.CancelScope() as scope, contextlib.suppress(ZeroDivisionError):
        async with releasing_tasks(task_list, WORKER, events.append):
            assert await state_of(task_list, task) == ("in_progress", WORKER)
            if end == "fails":
                raise ZeroDivisionError
            if end == "is cancelled":
                scope.cancel()
                await trio.sleep_forever()
    assert await state_of(task_list, task) == ("open", None)
    assert events == []


async def test_tasks_that_cannot_be_released_are_an_event(tmp_path: Path) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock(), lock_timeout=0.01)
    task = await claimed(task_list)
    events: list[Event] = []
    with task_list._files.lock():  # noqa: SLF001 - as another process holds it
        async with releasing_tasks(task_list, WORKER, events.append):
            pass
    failures = [event for event in events if isinstance(event, LayerFailed)]
    assert len(failures) == len(events) == 2, "neither could what an earlier start had be taken over"
    assert {failure.layer for failure in failures} == {"tasks"}
    assert all("held its lock" in failure.reason for failure in failures)
    assert await state_of(task_list, task) == ("in_progress", WORKER)


async def test_next_incarnation_keeps_the_tasks_of_a_crashed_one(tmp_path: Path) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock())
    task = await claimed(task_list)
    again = attrs.evolve(WORKER, incarnation=WORKER.incarnation + 1)
    async with releasing_tasks(task_list, again, lambda _: None):
        assert await state_of(task_list, task) == ("in_progress", again)
        await task_list.update(task, again, TaskChange(status="done"))
    assert await state_of(task_list, task) == ("done", again)
