"""After a crash there is another start, a few times; for whoever was stopped, or cannot work at all, there is none."""

import pytest

from coterie.agents.control.gate_words import Admit
from coterie.agents.control.words import AgentWord, Doing, Unable
from coterie.agents.events import AgentChanged, Event
from coterie.agents.gate import Intent
from coterie.agents.models import known_models
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.starting import Child
from coterie.orchestrator.tree.charge import Charge
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.restarting import Attempts, Restarts

MODEL = known_models().get("sonnet")
ORDER = Order(name="ann", task="look", model=MODEL.id, settings=Settings(), parent="main")
INTENT = Intent(agent="ann", purpose="turn", model=MODEL, prompt_tokens=1, max_tokens=1, prefix=b"")


def _begin(attempts: Attempts, told: list[Event]) -> Charge:
    duty = Duty(
        session="s",
        name="ann",
        incarnation=attempts.crashes + 1,
        parent="main",
        report=attempts.report,
        task=attempts.task,
        model=MODEL.id,
        settings=Settings(),
    )
    charge = Charge(attempts.order, duty, told.append)
    attempts.begin(charge)
    return charge


def _play(attempts: Attempts, told: list[Event], status: int, *words: AgentWord) -> float | None:
    """One start that said *words* and ended with *status*: what is waited for the next."""
    charge = _begin(attempts, told)
    for word in words:
        charge.hear(word)
    charge.child = Child(1, -1, status)
    return attempts.end(charge)


def _states(told: list[Event]) -> list[tuple[str, str]]:
    return [(event.state, event.what) for event in told if isinstance(event, AgentChanged)]


def test_each_wait_is_twice_the_last_and_the_crash_after_the_limit_is_final() -> None:
    attempts, told = Attempts(ORDER, Restarts(limit=2, first_wait=0.5)), list[Event]()
    assert [_play(attempts, told, -9) for _ in range(3)] == [0.5, 1.0, None]
    assert _states(told) == [
        ("starting", ""),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 1 of 2: Its process was ended by SIGKILL."),
        ("killed", "Its process was ended by SIGKILL."),
        ("starting", "again, 2 of 2: Its process was ended by SIGKILL."),
    ], "the last end is told when the parent has been"
    assert attempts.outcome is not None
    assert attempts.outcome.words == "It was started 3 times. Its process was ended by SIGKILL."


def test_a_task_is_told_again_until_the_model_was_to_be_asked() -> None:
    attempts = Attempts(ORDER, Restarts(limit=3))
    _play(attempts, [], -9)
    _play(attempts, [], -9, Doing(activity="running"))
    assert attempts.task == "look"
    _play(attempts, [], -9, Admit.of(0, INTENT))
    assert attempts.task == ""


@pytest.mark.parametrize(
    ("status", "words", "is_crash"),
    [
        (0, (), False),
        (1, (), True),
        (-11, (), True),
        (1, (Unable(reason="the disk is full"),), True),
        (1, (Unable(reason="there is no such model", is_for_user=True),), False),
    ],
)
def test_only_what_nobody_wanted_and_may_pass_is_a_crash(
    status: int, words: tuple[AgentWord, ...], is_crash: bool
) -> None:
    wait = _play(Attempts(ORDER, Restarts()), [], status, *words)
    assert (wait is not None) == is_crash


def test_whoever_is_being_stopped_is_not_started_again() -> None:
    attempts = Attempts(ORDER, Restarts())
    charge = _begin(attempts, [])
    charge.change("stopping")
    charge.child = Child(1, -1, -9)
    assert attempts.end(charge) is None
    attempts.stop("the user")
    assert attempts.outcome is not None
    assert attempts.outcome.words == "The user stopped it. Its process was ended by SIGKILL."


def test_whoever_has_stalled_is_stopped_and_started_again() -> None:
    attempts, told = Attempts(ORDER, Restarts(first_wait=0.5)), list[Event]()
    charge = _begin(attempts, told)
    charge.stall(600)
    charge.change("stopping")
    charge.child = Child(1, -1, -9)
    assert attempts.end(charge) == 0.5
    assert [state for state, _ in _states(told)] == ["starting", "stalled", "stopping", "killed"]
    _begin(attempts, told)
    again = "again, 1 of 2: Nothing was heard of it for 600 seconds. Its process was ended by SIGKILL."
    assert _states(told)[-1] == ("starting", again)
