"""`coterie attach` where nothing can be drawn, on sessions that do not run."""

import pytest
from click.testing import CliRunner, Result

from coterie.agents.events.agent_events import Finished
from coterie.orchestrator.cli.main import main
from tests.orchestrator.cli.live.board_session import BoardSession
from tests.orchestrator.session_writer import FINISHED, STARTED, reply


@pytest.fixture
def ended(stage: BoardSession, monkeypatch: pytest.MonkeyPatch) -> BoardSession:
    """A session whose lead had a helper."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("main", "a"):
        stage.change(name, "running")
        stage.agent(name).write_event(STARTED)
        stage.agent(name).write_text("assistant", f"I am {name}.", reply())
    stage.ask("plan-1", "a", "", plan="Look first", by="lead")
    stage.decide("plan-1", "a", by="lead", feedback="Good.")
    stage.change("a", "done")
    return stage


def attach(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["attach", *arguments])


def finish(stage: BoardSession, **facts: object) -> None:
    members = {name: getattr(FINISHED, name) for name in FINISHED.__struct_fields__}
    stage.agent("main").write_event(Finished(**members | facts))
    stage.change("main", "done")


def printed_lines(done: Result) -> list[str]:
    """What was printed, without the hours."""
    return [row[len("00:00:00 ") :] for row in done.stdout.splitlines()]


def test_what_happened_is_printed_line_by_line_and_then_how_it_ended(ended: BoardSession) -> None:
    finish(ended)
    done = attach(ended.session.id)
    assert done.exit_code == 0
    assert [row for row in printed_lines(done) if "tokens" not in row] == [
        "root  main is running",
        "main  started: m, default, in /p",
        "main  says: I am main.",
        "root  a is running",
        "a  started: m, default, in /p",
        "a  says: I am a.",
        "root  a asks the lead for approval of its plan, plan-1: Look first",
        "root  plan-1 is approved by the lead: Good.",
        "root  a is done",
        "root  main is done",
    ]
    assert done.stderr == f"session {ended.session.id} has ended: completed\n"
    assert "\x1b" not in done.stdout


def test_one_agent_alone_is_printed(ended: BoardSession) -> None:
    finish(ended)
    assert {row.split()[0] for row in printed_lines(attach(ended.session.id, "--agent", "a"))} == {"a", "root"}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"reason": "budget"}, 3),
        ({"reason": "failed", "error": "x"}, 1),
        ({"reason": "failed", "is_unreachable": True}, 5),
    ],
)
def test_the_exit_code_is_that_of_the_run(ended: BoardSession, facts: dict[str, object], code: int) -> None:
    finish(ended, **facts)
    assert attach(ended.session.id).exit_code == code


def test_one_that_was_interrupted_has_the_code_for_that(ended: BoardSession) -> None:
    done = attach(ended.session.id)
    assert done.exit_code == 130
    assert done.stderr == f"session {ended.session.id} was interrupted; `coterie resume` goes on with it\n"


def test_bad_input_is_one_line_that_says_what_would_be_right(ended: BoardSession) -> None:
    unknown = attach("2099")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr == f"Error: session: no session's id begins with '2099'; the newest is {ended.session.id}\n"
    agent = attach(ended.session.id, "--agent", "aa")
    assert (agent.exit_code, agent.stdout) == (2, "")
    assert agent.stderr == f"Error: --agent: 'aa' is not in session {ended.session.id}; did you mean a?\n"


@pytest.mark.parametrize("other", [["-p"], ["--output-format", "json"], ["--detach"]])
def test_a_board_and_what_is_none_cannot_both_be_had(other: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    done = CliRunner().invoke(main, ["run", "x", "--live", *other])
    assert done.exit_code == 2
    assert done.stderr.endswith(f"Error: --live shows a board, and {other[0]} does not: give one of them\n")
