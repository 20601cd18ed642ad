"""`coterie list` and `coterie stop` over sessions that do not run."""

import json
from pathlib import Path

import pytest
import trio

from coterie.agents.events.agent_events import ProgressSummarized, TextEmitted
from coterie.agents.events.event_log import EventLog
from coterie.agents.events.root_events import AgentChanged
from coterie.clock import Clock
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import open_root_record
from coterie.session_directory import EVENT_LOG, SessionDirectory
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer, set_states

pytestmark = pytest.mark.usefixtures("home")


def make(project: Path, *, age: float = 0, task: str = "t") -> SessionDirectory:
    clock = Clock()
    clock.advance(-age)
    return SessionDirectory.create(project, clock, task=task, model="m")


def test_sessions_are_listed_the_newest_first_with_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cut_short, done = make(tmp_path / "a", age=90_000), make(tmp_path / "b", age=300, task="\nLook around.\nWell.")
    with open_writer(cut_short.directory) as agent:
        agent.write_event(FINISHED)
        agent.write_event(STARTED)
    with open_writer(done.directory) as agent:
        agent.write_event(STARTED)
        agent.write_event(FINISHED)
    spent = line("main", output=100)
    with Ledger.open(done.directory / LEDGER) as ledger:
        ledger.append(spent)
    set_states(done, main="running", scout="ended")
    assert coterie("list").stdout.splitlines() == [
        f"{done.id}  ended         5 min  ${spent.cost_usd:.6f}  ~/b  Look around.",
        "    main interrupted, scout ended",
        f"{cut_short.id}  interrupted     1 d  $0.000000  ~/a  t",
    ]


def test_end_state_of_an_agent_is_the_last_one_of_its_last_start(tmp_path: Path) -> None:
    session = make(tmp_path)
    set_states(session, scout="ended", coder="ended")
    with SessionMail.open(session, Clock()) as mail_of_session:
        trio.run(mail_of_session.roster.join, "coder")
    set_states(session, coder="ended")
    with EventLog.open(session.directory / EVENT_LOG, "root", Clock()) as log:
        log.emit(AgentChanged(name="coder", incarnation=1, state="killed"))
        log.emit(AgentChanged(name="scout", incarnation=1, state="running"))
        log.emit(AgentChanged(name="scout", incarnation=1, state="failed"))
    [listed] = json.loads(coterie("list", "--json").stdout)["sessions"]
    assert {agent["name"]: agent["state"] for agent in listed["agents"]} == {"scout": "failed", "coder": "ended"}


def test_list_shows_progress_of_running_agents(tmp_path: Path) -> None:
    session = make(tmp_path)
    set_states(session, main="running", scout="running", fresh="running", coder="ended")
    for name in ("scout", "fresh", "coder"):
        with open_writer(session.directory, name) as agent:
            agent.write_event(STARTED)
            for text in ("Looking around", "Reading loop.py"):
                agent.write_event(ProgressSummarized(text=text, turn=2, seconds=1.0, cost_usd="0.001"))
            agent.write_event(TextEmitted(turn=3, text='I see {"kind":"progress"} here.'))
    with open_writer(session.directory, "fresh") as agent:
        agent.write_event(STARTED)
    assert [agent.progress for agent in read_overview(session).agents] == [None] * 4
    with open_root_record(session, Clock()):
        lines = coterie("list").stdout.splitlines()
        [listed] = json.loads(coterie("list", "--json").stdout)["sessions"]
    assert lines[1:] == ["    main running, scout running, fresh running, coder ended", "    scout: Reading loop.py"]
    shown = {agent["name"]: agent["progress"] for agent in listed["agents"]}
    assert shown == {"main": None, "scout": "Reading loop.py", "fresh": None, "coder": None}


def test_json_has_every_field_of_a_session_and_skips_unreadable_ones(tmp_path: Path) -> None:
    listed = coterie("list")
    assert (listed.exit_code, listed.stdout, "`coterie run`" in listed.stderr) == (0, "", True)
    session, bad = make(tmp_path, task="\x1b[2Jred\x07"), make(tmp_path, age=60)
    assert coterie("list").stdout.splitlines()[0].rstrip().endswith("  red")
    (bad.directory / "session.json").write_bytes(b"{")
    with open_writer(session.directory) as agent:
        agent.write_event(FINISHED)
    done = coterie("list", "--json")
    assert (done.exit_code, str(bad.directory / "session.json") in done.stderr) == (1, True)
    found = json.loads(done.stdout)
    [row] = found["sessions"]
    assert found["more"] == 0
    assert " ".join(row) == "session project task model state reason started age starts agents cost_usd"
    assert (row["session"], row["project"], row["started"]) == (session.id, str(tmp_path), session.started)
    assert (row["state"], row["reason"], row["starts"], row["cost_usd"]) == ("ended", "completed", 1, "0")


def test_list_shows_twenty_sessions_by_default(tmp_path: Path) -> None:
    names = [make(tmp_path, age=60 * number).id for number in range(22)]
    some, every = coterie("list"), coterie("list", "--all")
    assert [row.split()[0] for row in some.stdout.splitlines()] == names[:20]
    assert some.stderr == "older sessions that are not shown: 2; --all lists them\n"
    assert [row.split()[0] for row in every.stdout.splitlines()] == names
    assert every.stderr == ""
    assert json.loads(coterie("list", "--json").stdout)["more"] == 2


def test_stop_refuses_a_session_that_is_unknown_or_not_running(tmp_path: Path) -> None:
    session = make(tmp_path)
    for arguments in ([], ["--now"]):
        done = coterie("stop", session.id, *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: session {session.id} cannot be reached: it is not running; ")
    done = coterie("stop", "nope")
    assert (done.exit_code, "'nope'" in done.stderr) == (2, True)
