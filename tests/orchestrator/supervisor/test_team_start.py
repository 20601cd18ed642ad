"""Start of a team: members start one after the other, and a failed member is reported to the lead."""

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.child_agents import spawn_team
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.supervisor.process_samples import NoSpawner


@attrs.define(eq=False)
class PartialSpawner(NoSpawner):
    """Starts all but one."""

    refused: str
    started: list[str | None] = attrs.field(factory=list)

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`."""
        await trio.lowlevel.checkpoint()
        if request.name == self.refused:
            raise SpawnRefused("No agent was started: the disk is full.")
        self.started.append(request.name)
        return Spawned(name=str(request.name), incarnation=1, report=MessageId("r"))


async def test_members_without_a_task_start_first_and_a_failed_one_is_reported(session: SessionDirectory) -> None:
    tasks = {"a": "Go.", "b": "", "c": "Go.", "d": ""}
    requests = [SpawnRequest(task=task, definition="worker", name=name, stays=True) for name, task in tasks.items()]
    told, spawner = list[Event](), PartialSpawner("b")
    with SessionMail.open(session, Clock()) as office:
        await office.roster.join(MAIN)
        await spawn_team(requests, spawner, MAIN, StatusPublisher(office, told.append), told.append)
        async with office.files.open_inbox(MAIN, 1) as inbox:
            [delivery] = inbox.take_nowait()
    assert spawner.started == ["d", "a", "c"]
    reason = "b of your team could not be started. No agent was started: the disk is full."
    assert told == [LayerFailed(layer="team", reason=reason)]
    assert (delivery.envelope.body, delivery.envelope.sender.kind) == (reason, "system")
