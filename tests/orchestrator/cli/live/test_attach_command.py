"""`coterie attach` without a terminal, on sessions that are not running."""

from functools import partial

import pytest
from click.testing import Result

from coterie.agents.events.agent_events import Finished
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.cli.live.board_session import BoardSession
from tests.orchestrator.session_writer import FINISHED, STARTED, reply

attach = partial(coterie, "attach")


@pytest.fixture
def ended(stage: BoardSession, monkeypatch: pytest.MonkeyPatch) -> BoardSession:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("main", "a"):
        stage.change(name, "running")
        stage.agent(name).write_event(STARTED)
        stage.agent(name).write_text("assistant", f"I am {name}.", reply())
    stage.ask("plan-1", "a", "", plan="Look first", by="lead")
    stage.decide("plan-1", "a", by="lead", feedback="Good.")
    stage.change("a", "done")
    return stage


def finish(stage: BoardSession, **facts: object) -> None:
    members = {name: getattr(FINISHED, name) for name in FINISHED.__struct_fields__}
    stage.agent("main").write_event(Finished(**members | facts))
    stage.change("main", "done")


def printed_lines(done: Result) -> list[str]:
    return [row[len("00:00:00 ") :] for row in done.stdout.splitlines()]


def test_attach_prints_events_and_the_end_of_the_session(ended: BoardSession) -> None:
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
        "root  plan-1 was approved by the lead: Good.",
        "root  a is done",
        "root  main is done",
    ]
    assert done.stderr == f"session {ended.session.id} has ended: completed\n"
    assert "\x1b" not in done.stdout
    assert {row.split()[0] for row in printed_lines(attach(ended.session.id, "--agent", "a"))} == {"a", "root"}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"reason": "budget"}, 3),
        ({"reason": "failed", "error": "x"}, 1),
        ({"reason": "failed", "is_unreachable": True}, 5),
    ],
)
def test_attach_exits_with_the_code_of_the_run(ended: BoardSession, facts: dict[str, object], code: int) -> None:
    interrupted = attach(ended.session.id)
    assert interrupted.exit_code == 130
    assert interrupted.stderr.startswith(f"session {ended.session.id} was interrupted")
    finish(ended, **facts)
    assert attach(ended.session.id).exit_code == code


@pytest.mark.parametrize("other", [["-p"], ["--output-format", "json"], ["--detach"]])
def test_live_option_excludes_other_outputs(other: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    done = coterie("run", "x", "--live", *other)
    assert done.exit_code == 2
    assert f"Error: --live and {other[0]} " in done.stderr
