"""After a crash there is another start, a few times; for whoever was stopped, or cannot work at all, there is none."""

import pytest

from coterie.agents.events.agent_events import Event
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.root_link.messages import ActivityChanged, AdmitCall, AgentMessage, RunFailed
from coterie.agents.runtime.spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.supervisor.agent_process import AgentProcess
from coterie.orchestrator.supervisor.agent_run import RestartPolicy, RunAttempts
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec

MODEL = known_models().get("sonnet")
ORDER = SpawnSpec(name="ann", task="look", model=MODEL.id, settings=Settings(), parent="main")
INTENT = CallIntent(agent="ann", purpose="turn", model=MODEL, prompt_tokens=1, max_tokens=1, prefix=b"")


def _begin(attempts: RunAttempts, told: list[Event]) -> AgentProcess:
    duty = AgentSpec(
        session="s",
        name="ann",
        incarnation=attempts.crashes + 1,
        parent="main",
        report=attempts.report,
        task=attempts.task,
        model=MODEL.id,
        settings=Settings(),
    )
    charge = AgentProcess(attempts.order, duty, told.append)
    attempts.begin(charge)
    return charge


def _run_attempt(attempts: RunAttempts, told: list[Event], status: int, *words: AgentMessage) -> float | None:
    """One start that said *words* and ended with *status*: what is waited for the next."""
    charge = _begin(attempts, told)
    for word in words:
        charge.handle(word)
    charge.child = ChildProcess(1, -1, status)
    return attempts.end(charge)


def _states(told: list[Event]) -> list[tuple[str, str]]:
    return [(event.state, event.what) for event in told if isinstance(event, AgentChanged)]


def test_each_wait_is_twice_the_last_and_the_crash_after_the_limit_is_final() -> None:
    attempts, told = RunAttempts(ORDER, RestartPolicy(limit=2, first_wait=0.5)), list[Event]()
    assert [_run_attempt(attempts, told, -9) for _ in range(3)] == [0.5, 1.0, None]
    assert _states(told) == [
        ("starting", ""),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 1 of 2: Its process was ended by SIGKILL."),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 2 of 2: Its process was ended by SIGKILL."),
    ], "the last end is told when the parent has been"
    assert attempts.outcome is not None
    assert attempts.outcome.summary == "It was started 3 times. Its process was ended by SIGKILL."


def test_a_task_is_told_again_until_the_model_was_to_be_asked() -> None:
    attempts = RunAttempts(ORDER, RestartPolicy(limit=3))
    _run_attempt(attempts, [], -9)
    _run_attempt(attempts, [], -9, ActivityChanged(activity="running"))
    assert attempts.task == "look"
    _run_attempt(attempts, [], -9, AdmitCall.of(0, INTENT))
    assert attempts.task == ""


@pytest.mark.parametrize(
    ("status", "words", "is_crash"),
    [
        (0, (), False),
        (1, (), True),
        (-11, (), True),
        (1, (RunFailed(reason="the disk is full"),), True),
        (1, (RunFailed(reason="there is no such model", is_for_user=True),), False),
    ],
)
def test_only_what_nobody_wanted_and_may_pass_is_a_crash(
    status: int, words: tuple[AgentMessage, ...], is_crash: bool
) -> None:
    wait = _run_attempt(RunAttempts(ORDER, RestartPolicy()), [], status, *words)
    assert (wait is not None) == is_crash


def test_whoever_is_being_stopped_is_not_started_again() -> None:
    attempts = RunAttempts(ORDER, RestartPolicy())
    charge = _begin(attempts, [])
    charge.set_state("stopping")
    charge.child = ChildProcess(1, -1, -9)
    assert attempts.end(charge) is None
    attempts.stop("the user")
    assert attempts.outcome is not None
    assert attempts.outcome.summary == "The user stopped it. Its process was ended by SIGKILL."


def test_whoever_has_stalled_is_stopped_and_started_again() -> None:
    attempts, told = RunAttempts(ORDER, RestartPolicy(first_wait=0.5)), list[Event]()
    charge = _begin(attempts, told)
    charge.report_stall(600)
    charge.set_state("stopping")
    charge.child = ChildProcess(1, -1, -9)
    assert attempts.end(charge) == 0.5
    assert [state for state, _ in _states(told)] == ["starting", "stalled", "stopping", "killed"]
    _begin(attempts, told)
    again = "again, 1 of 2: Nothing was heard of it for 600 seconds. Its process was ended by SIGKILL."
    assert _states(told)[-1] == ("starting", again)
