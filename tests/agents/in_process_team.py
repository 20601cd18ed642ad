"""Agents of one session as tasks of one process, with real mail, transcripts and scripted models."""

import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

from coterie.agents.events.agent_events import Event
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import TranscriptWriter, load_transcript
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.runtime.mail_loop import TeamMembership, run_mail_loop
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.tool import Tool
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import Router
from coterie.mailbox.transports.in_process.transport import QueueTransport
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from tests.agents.opened_layers import build_pipeline, with_mail
from tests.agents.scripted_agent import QUICK, build_agent
from tests.embedded_server import Served, open_served


@attrs.frozen(kw_only=True)
class NoKeys:
    """Key source without keys: agents of one process do not sign their mail."""

    def key_of(self, _sender: Sender) -> None:
        """Return None for every sender."""


@attrs.define(eq=False, kw_only=True)
class LocalMail:
    """Mail of agents that share a process."""

    roster: LocalRoster = attrs.field(factory=LocalRoster)
    dead: list[DeadLetter] = attrs.field(factory=list)
    is_disk_full: bool = False
    """True if storing a dead letter fails."""
    transport: QueueTransport = attrs.field(init=False)
    router: Router = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.transport = QueueTransport(self.roster, None, Clock(), self.add_dead_letter)
        self.router = Router(self.roster, NoKeys(), self.transport)

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Store a dead letter. Raises `OSError` if the simulated disk is full."""
        if self.is_disk_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.dead.append(letter)

    def sender(self, name: str, session: str = "s") -> Sender:
        kind: Any = {"main": "lead", "user": "human"}.get(name, "peer")
        return Sender(name=name, incarnation=1, session=session, kind=kind)


@attrs.define(eq=False, kw_only=True)
class Team(LocalMail):
    """Agents of one session, each of them a task of this process."""

    directory: Path
    served: Served
    client: ModelClient
    nursery: trio.Nursery
    states: list[tuple[str, str]] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    ended: dict[str, RunEnded] = attrs.field(factory=dict)

    def start(self, name: str, task: str | None, *tools: Tool, lead: str | None = None) -> None:
        """Add an agent to the roster and run it, with a task or waiting for mail."""
        start = self.roster.join(name).incarnation
        self.nursery.start_soon(self.run, name, start, task, tools, lead)

    async def run(
        self, name: str, start: int, task: str | None, tools: tuple[Tool, ...] = (), lead: str | None = None
    ) -> None:
        """Run one incarnation of an agent."""
        with TranscriptWriter.open(self.path(name)) as transcript:
            async with self.transport.open_inbox(name, start, seen=transcript.loaded.mail) as inbox:
                mail = Messaging(MergedInbox(name, inbox, (), self.add_dead_letter))
                send = SendMessage(router=self.router, sender=self.sender(name))
                agent = build_agent(
                    transcript, self.client, self.directory, send, *tools, name=name, emit=self.events.append
                )
                pipeline = build_pipeline(
                    LayersSettings(clearing=ClearingSettings(by_cache=False)), dict(agent.tools), self.directory / name
                )
                agent.pipeline = with_mail(pipeline, mail)
                if task is not None and not agent.conversation.messages:
                    agent.append_message("user", [text_block(task)])

                def note(state: str) -> None:
                    self.states.append((name, state))

                membership = TeamMembership(router=self.router, sender=self.sender(name), lead=lead)
                self.ended[name] = await run_mail_loop(agent, mail, RunLimits(turns=20), membership, note)

    def path(self, name: str) -> Path:
        """Return the path of an agent's transcript."""
        return self.directory / f"{name}.jsonl"

    def texts(self, name: str) -> list[str]:
        """Return all user texts and tool results of an agent's conversation."""
        loaded = load_transcript(self.path(name)).conversation
        assert loaded is not None
        blocks = [json.loads(segment.data) for segment in loaded.segments if segment.role == "user"]
        return [block["text"] if block["type"] == "text" else block["content"][0]["text"] for block in blocks]

    async def until_asked(self, agent: str, turn: int) -> None:
        """Wait until the model has answered *turn* of *agent*."""
        await self.until(lambda: any((e["agent"], e["turn"]) == (agent, turn) for e in self.served.requests))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until *is_so* returns True; `open_team` has a time limit."""
        while not is_so():
            await trio.testing.wait_all_tasks_blocked(0.01)

    async def received(self, name: str) -> list[Envelope]:
        """Return the unread mail of a member that does not run."""
        async with self.transport.open_inbox(name, 1) as inbox:
            return [delivery.envelope for delivery in inbox.take_nowait()]


@asynccontextmanager
async def open_team(script: str, directory: Path) -> AsyncIterator[Team]:
    with trio.fail_after(20):
        async with (
            open_served(script) as served,
            open_model_client(LocalGateway(), base_url=served.url, api_key="k", policy=QUICK) as client,
            trio.open_nursery() as nursery,
        ):
            yield Team(directory=directory, served=served, client=client, nursery=nursery)
            nursery.cancel_scope.cancel()
