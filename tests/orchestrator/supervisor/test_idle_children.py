"""Detection of idle teams: all descendants are idle, and no pending mail would wake one."""

from pathlib import Path

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.agents.root_link.messages import Activity, ActivityChanged
from coterie.agents.runtime.agent_spec import AgentSpec, Incarnation
from coterie.agents.settings import Settings
from coterie.mailbox.message_bodies import Idle
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.orchestrator.supervisor.child_agents import StateChanges, wait_until_idle
from coterie.orchestrator.supervisor.root_services import RootServices
from tests.mailbox.file_mail import envelope, transport
from tests.orchestrator.supervisor.process_samples import make_process


def make_run(services: RootServices, name: str, state: Activity) -> AgentRun:
    """A run whose process has said that it is in *state*."""
    run = AgentRun(spec=AgentSpec(name=name, task="look", model="m", settings=Settings(), parent="main"))
    spec = attrs.evolve(run.spec, task=run.task, incarnation=Incarnation(number=1))
    run.begin_process(make_process(services, spec, lambda _: None))
    report_state(run, state)
    return run


def report_state(run: AgentRun, state: Activity) -> None:
    assert run.process is not None
    run.process.handle(ActivityChanged(activity=state, what=""))


@attrs.define(eq=False)
class Waiting:
    mailboxes: Path
    runs: list[AgentRun] | None
    changes: StateChanges = attrs.field(factory=StateChanges)
    is_over: bool = False
    looks: int = 0

    def below(self) -> list[AgentRun] | None:
        self.looks += 1
        return self.runs

    async def run(self) -> None:
        await wait_until_idle(self.below, self.mailboxes, self.changes)
        self.is_over = True


async def test_team_is_busy_while_members_are_spawned_start_run_or_wait(services: RootServices, tmp_path: Path) -> None:
    ada = make_run(services, "ada", "running")
    both = [ada, make_run(services, "bob", "idle")]
    steps: list[tuple[list[AgentRun] | None, Activity]] = [
        (None, "idle"),
        ([AgentRun(spec=ada.spec)], "idle"),
        (both, "running"),
        (both, "waiting"),
        (both, "plan_pending"),
    ]
    waiting = Waiting(tmp_path, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        for waiting.runs, state in steps:
            report_state(ada, state)
            waiting.changes.notify()
            await wait_all_tasks_blocked()
            assert not waiting.is_over, state
        report_state(ada, "idle")
        waiting.changes.notify()


async def test_team_is_busy_while_an_idle_agent_has_mail(
    services: RootServices, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The check is repeated after a time, because an agent that takes mail without a turn sends no message."""
    del autojump_clock
    files = transport(tmp_path)
    waiting = Waiting(tmp_path, [make_run(services, "ada", "idle")])
    await files.send(envelope(1))
    async with files.open_inbox("ada", 1) as inbox, trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        while waiting.looks < 3:  # noqa: ASYNC110 - the clock is what it waits for
            await trio.sleep(1)
        assert not waiting.is_over
        await inbox.acknowledge([delivery.envelope.id for delivery in inbox.take_nowait()])
    files.close()


async def test_team_is_idle_when_pending_mail_wakes_no_agent(services: RootServices, tmp_path: Path) -> None:
    files = transport(tmp_path)
    idle = Idle(outcome="completed")
    await files.send(attrs.evolve(envelope(1), kind=idle.kind, body=idle.to_body()))
    await Waiting(tmp_path, [make_run(services, "ada", "idle"), make_run(services, "bob", "idle")]).run()
    await Waiting(tmp_path, []).run()
    files.close()


async def test_team_is_busy_when_mail_is_taken_during_the_check(
    services: RootServices, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The agent was busy and idle again between two checks, so its message count has changed."""
    del autojump_clock
    ada = make_run(services, "ada", "idle")

    @attrs.define(eq=False)
    class Busy(Waiting):
        def below(self) -> list[AgentRun] | None:
            found = Waiting.below(self)
            if self.looks == 2:
                report_state(ada, "running")
                report_state(ada, "idle")
            return found

    waiting = Busy(tmp_path, [ada])
    await waiting.run()
    assert waiting.looks == 4
