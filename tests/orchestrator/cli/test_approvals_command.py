"""`coterie approvals` over records, of sessions that run and of sessions that do not."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import msgspec
import pytest

from coterie.clock import Clock
from coterie.orchestrator.approvals.store import APPROVALS, Approval, ApprovalKey, ApprovalStore
from coterie.orchestrator.cli.commands.approvals import LONGEST_FEEDBACK
from coterie.orchestrator.session.root_lock import open_root_record
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import permission, plan
from tests.orchestrator.cli.command_runner import coterie, printed, refusal

approvals = partial(coterie, "approvals")
PLAN = Approval(id="plan-1", claim=plan("1. Write a.txt.\n2. Test it.", files=("a.txt", "b.txt")), asked_at=86_400.0)
MAKE = permission("make", agent="scout", incarnation=2, details={"timeout": "9"})
PERMISSION = Approval(id="permission-2", claim=MAKE, asked_at=86_500.0)
DECIDED = attrs.evolve(
    PLAN, id="plan-3", asked_at=86_600.0, state="rejected", by="lead", feedback="No.", decided_at=1.0
)


MakeSession = Callable[..., SessionDirectory]


@pytest.fixture
def stored(home: Path, tmp_path: Path, runtime: Path) -> Iterator[MakeSession]:
    """Makes sessions with approvals; this process is the root of those that run."""
    with ExitStack() as roots:

        def make(*approvals: Approval, runs: bool = True) -> SessionDirectory:
            session = SessionDirectory.create(tmp_path, Clock(), task="t", model="m")
            records = ApprovalStore.of(session, ApprovalKey.of_session(session.id))
            for approval in approvals:
                records.save(approval)
            if runs:
                roots.enter_context(open_root_record(session, Clock()))
            return session

        yield make


def refused(*arguments: str) -> str:
    return refusal(approvals(*arguments))


def test_open_approvals_of_running_sessions_are_listed(stored: MakeSession) -> None:
    assert "no agent" in approvals("list").stderr
    session = stored(PLAN, PERMISSION, DECIDED)
    stored(PLAN, runs=False)
    done = approvals("list")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{session.id}  plan-1          open       builder       1. Write a.txt.",
        f"{session.id}  permission-2    open       scout         Bash make",
    ]
    assert len(approvals("list", "--all").stdout.splitlines()) == 3


def test_approvals_of_a_session_that_is_not_running_are_listed_but_not_answered(stored: MakeSession) -> None:
    session = stored(PLAN, DECIDED, runs=False)
    assert [row["id"] for row in printed("approvals", "list", session.id)["approvals"]] == ["plan-1"]
    assert [row["id"] for row in printed("approvals", "list", session.id, "--all")["approvals"]] == ["plan-1", "plan-3"]
    assert f"`coterie resume {session.id}`" in refused("approve", "plan-1", "--session", session.id)
    assert "'x'" in refused("approve", "plan-1", "--session", "x")


def test_json_has_every_field_of_an_approval(stored: MakeSession) -> None:
    session = stored(PLAN, PERMISSION, DECIDED)
    [first, second] = printed("approvals", "list")["approvals"]
    assert " ".join(first) == (
        "session id what agent incarnation approver subject plan files paths question asked_at state by feedback"
        " decided_at is_past doubt"
    )
    assert (first["session"], first["subject"], first["state"]) == (session.id, "1. Write a.txt.", "open")
    assert (first["plan"], first["files"]) == ("1. Write a.txt.\n2. Test it.", ["a.txt", "b.txt"])
    question = {"tool": "Bash", "subject": "make", "details": {"timeout": "9"}, "reason": "no rule"}
    assert second["question"] == question
    shown = printed("approvals", "show", "plan-3")
    assert (shown["state"], shown["by"], shown["feedback"], shown["decided_at"]) == ("rejected", "lead", "No.", 1.0)


def test_show_prints_everything_and_escapes_hidden_characters(stored: MakeSession) -> None:
    evil = attrs.evolve(PLAN, id="plan-4", claim=plan("1. Look.\x1b[2K\u202e\n2. Go.", agent="b\x1b[1m"))
    session = stored(PLAN, PERMISSION, DECIDED, evil)
    assert approvals("show", "plan-1").stdout.splitlines() == [
        "plan-1",
        f"session: {session.id}",
        "agent: builder, start 1",
        time.strftime("asked: %Y-%m-%d %H:%M:%S", time.localtime(PLAN.asked_at)),
        "state: open, for the lead to decide",
        "files: a.txt, b.txt",
        "",
        "1. Write a.txt.",
        "2. Test it.",
    ]
    shown = "call: Bash make\nbecause: no rule\n\ntimeout:\n9\n"
    assert approvals("show", "permission-2").stdout.endswith(shown)
    assert "state: rejected by the lead\nfeedback: No.\n" in approvals("show", "plan-3").stdout
    assert approvals("show", "plan-4").stdout.splitlines()[-2:] == ["1. Look.\\x1b[2K\\u202e", "2. Go."]
    assert "\x1b" not in approvals("list").stdout


def test_a_changed_file_is_doubted_and_a_damaged_one_skipped_with_exit_1(stored: MakeSession) -> None:
    session, other = stored(PLAN, PERMISSION), stored(DECIDED)
    path = session.directory / APPROVALS / "plan-1.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"open"', b'"approved"'))
    assert "  1. Write a.txt.  (file was changed)" in approvals("list", "--all").stdout
    assert "\ndoubt: " in approvals("show", "plan-1").stdout
    path.write_bytes(whole[:-30])
    done = approvals("list", "--all")
    assert done.exit_code == 1
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"permission-2", "plan-3"}
    assert done.stderr.startswith(f"{path}: ")
    (Path(other.directory).parents[3] / "keys" / session.id).unlink()
    done = approvals("list", "--all", "--json")
    assert done.exit_code == 1
    assert [row["session"] for row in msgspec.json.decode(done.stdout)["approvals"]] == [other.id]


def test_unknown_id_is_refused_with_the_closest_one(stored: MakeSession) -> None:
    for command in (("show", "plan-2"), ("approve", "plan-2"), ("reject", "plan-2", "-f", "x")):
        assert refused(*command).startswith("unknown approval 'plan-2' in the running sessions")
    session = stored(PLAN)
    line = refused("show", "paln-1", "-s", session.id)
    assert session.id in line
    assert line.endswith("did you mean plan-1?")


def test_reject_needs_feedback_and_too_long_feedback_is_refused(stored: MakeSession) -> None:
    stored(PLAN)
    for feedback in ((), ("-f", ""), ("--feedback", " \n")):
        assert "--feedback" in refused("reject", "plan-1", *feedback)
    line = refused("approve", "plan-1", "-f", "x" * (LONGEST_FEEDBACK + 1))
    assert "20,001" in line
    assert "20,000" in line


def test_id_of_two_sessions_needs_a_session_unless_one_is_open(stored: MakeSession) -> None:
    first, second = stored(PLAN), stored(PLAN)
    for command in ("show", "approve"):
        line = refused(command, "plan-1")
        assert "--session" in line
        assert {first.id, second.id} <= set(line.replace(",", "").replace(";", "").split())
    ApprovalStore.of(second, ApprovalKey.find(second.id)).save(attrs.evolve(DECIDED, id="plan-1"))
    # The request reaches the root, which is this process and does not answer.
    assert "2 sessions" not in refused("approve", "plan-1")
    assert "2 sessions" in refused("show", "plan-1")
    assert approvals("show", "plan-1", "-s", second.id).exit_code == 0
