"""Detection of stalled agents, and restarts after a crash: a limited number, and none for a stopped agent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from coterie.agents.events.agent_events import Event
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.root_link.messages import ActivityChanged, AdmitCall, AgentMessage, RunFailed
from coterie.agents.runtime.agent_spec import AgentSpec, Incarnation
from coterie.agents.settings import Settings
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.supervisor.agent_run import AgentRun, RestartPolicy
from coterie.orchestrator.supervisor.recovery import UnfinishedAgents
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.orchestrator.supervisor.stall_watch import Activity, wait_for_stall, wakeup_count, written_bytes
from coterie.session_directory import EVENT_LOG, TRANSCRIPT
from tests.orchestrator.supervisor.process_samples import NoSpawner, make_process

MODEL = known_models().get("sonnet")
SPEC = AgentSpec(name="ann", task="look", model=MODEL.id, settings=Settings(), parent="main")
INTENT = CallIntent(agent="ann", purpose="turn", model=MODEL, prompt_tokens=1, max_tokens=1, prefix=b"")


@attrs.define(eq=False)
class Restarted:
    """A run whose processes end as the test says."""

    services: RootServices
    restarts: RestartPolicy = attrs.field(factory=RestartPolicy)
    run: AgentRun = attrs.field(factory=lambda: AgentRun(spec=SPEC))
    events: list[Event] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.run.begin_task(self.restarts, NoSpawner())

    def attempt(self, status: int, *messages: AgentMessage) -> float | None:
        """Begin a start that sends *messages* and ends with *status*; returns the wait before the next."""
        run = self.run
        spec = attrs.evolve(run.spec, task=run.task, incarnation=Incarnation(number=run.crash_count + 1))
        process = make_process(self.services, spec, self.events.append)
        run.begin_process(process)
        for message in messages:
            process.handle(message)
        process.child = ChildProcess(1, -1, status)
        return run.end_process(process)

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(event.state, event.what) for event in self.events if isinstance(event, AgentChanged)]


async def test_each_wait_is_twice_the_last_and_the_crash_after_the_limit_is_final(services: RootServices) -> None:
    restarted = Restarted(services, RestartPolicy(limit=2, first_wait=0.5))
    assert [restarted.attempt(-9) for _ in range(3)] == [0.5, 1.0, None]
    assert restarted.states == [
        ("starting", ""),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 1 of 2: Its process was ended by SIGKILL."),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 2 of 2: Its process was ended by SIGKILL."),
    ], "the last end is told when the parent has been"
    assert restarted.run.outcome is not None
    assert restarted.run.outcome.summary == "It was started 3 times. Its process was ended by SIGKILL."


async def test_task_is_sent_again_until_the_first_model_call(services: RootServices) -> None:
    restarted = Restarted(services, RestartPolicy(limit=3))
    restarted.attempt(-9)
    restarted.attempt(-9, ActivityChanged(activity="running"))
    assert restarted.run.task == "look"
    restarted.attempt(-9, AdmitCall(permit=0, intent=INTENT))
    assert restarted.run.task == ""


@pytest.mark.parametrize(
    ("status", "messages", "is_crash"),
    [
        (0, (), False),
        (1, (), True),
        (-11, (), True),
        (1, (RunFailed(reason="the disk is full"),), True),
        (1, (RunFailed(reason="there is no such model", is_for_user=True),), False),
    ],
)
async def test_only_unrequested_recoverable_ends_count_as_a_crash(
    services: RootServices, status: int, messages: tuple[AgentMessage, ...], is_crash: bool
) -> None:
    wait = Restarted(services).attempt(status, *messages)
    assert (wait is not None) == is_crash


async def test_outcome_of_a_stopped_agent_names_the_stopper(services: RootServices) -> None:
    restarted = Restarted(services)
    restarted.attempt(-9)
    restarted.run.ended.set()
    await restarted.run.stop("the user")
    unfinished = UnfinishedAgents(services.mail.session, services.approvals.records.key, services.emit)
    await restarted.run.finish_task(services, unfinished, keeps_worktree=False)
    assert restarted.run.outcome is not None
    assert restarted.run.outcome.summary == "The user stopped it. Its process was ended by SIGKILL."


async def test_unchanged_activity_is_a_stall_unless_the_agent_waits(autojump_clock: MockClock) -> None:
    del autojump_clock
    began = trio.current_time()

    def signs() -> Activity | None:
        past = trio.current_time() - began
        return (min(int(past), 30),)  # it gets on for half a minute

    await wait_for_stall(signs, 60)
    assert 90 <= trio.current_time() - began <= 97
    began = trio.current_time()
    await wait_for_stall(lambda: None if trio.current_time() - began < 1_000 else (), 60)
    assert 1_060 <= trio.current_time() - began <= 1_073


def test_written_bytes_count_as_activity(tmp_path: Path) -> None:
    signs = [written_bytes(tmp_path)]
    for name in (EVENT_LOG, TRANSCRIPT):
        (tmp_path / name).write_text("x\n")
        signs.append(written_bytes(tmp_path))
    assert len(set(signs)) == 3


def test_wakeup_count_grows_only_while_the_process_runs() -> None:
    ours = wakeup_count(os.getpid())
    time.sleep(0.001)  # what is counted: to have waited
    assert wakeup_count(os.getpid()) > ours
    program = "import time\nprint(flush=True)\nwhile True: time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        stopped = wakeup_count(child.pid)
        time.sleep(0.02)
        assert wakeup_count(child.pid) == stopped
        child.kill()
    assert wakeup_count(child.pid) == 0
