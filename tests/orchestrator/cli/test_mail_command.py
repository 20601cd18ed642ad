"""`coterie mail` over a session whose agents are not running."""

import base64
import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from coterie.mailbox.contract import DeadReason, Delivery
from coterie.mailbox.envelope import Envelope
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.cli.command_runner import coterie, offered, printed, refusal
from tests.orchestrator.mail_writer import MailWriter
from tests.orchestrator.session_writer import set_states

mail = partial(coterie, "mail")
mail_json = partial(printed, "mail")
OTHER = "20260101-000000-abcdef"


class Mail(MailWriter):
    """A session with a lead, a worker and an ended agent, with changes of its mail."""

    def make(self, body: str = "words", *, session: str | None = None, **facts: Any) -> Envelope:
        """Message to the worker from the lead of this session, or to the lead from that of another *session*."""
        return self.make_message(MAIN, MAIN if session else "worker", body, session=session, **facts)

    def take(self, name: str, acknowledged: int = 0) -> list[Delivery]:
        """Deliveries to *name*; the first *acknowledged* ones are acknowledged."""

        async def take() -> list[Delivery]:
            with self.open() as mail_of_session:
                async with mail_of_session.files.open_inbox(name, 1) as inbox:
                    deliveries = inbox.take_nowait()
                    await inbox.acknowledge([delivery.envelope.id for delivery in deliveries[:acknowledged]])
                    return deliveries

        return trio.run(take)

    def leave(self, name: str) -> None:
        with self.open() as mail_of_session:
            trio.run(mail_of_session.roster.leave, name)

    def hold(self, letter: Envelope) -> None:
        with self.open() as mail_of_session:
            trio.run(mail_of_session.held.hold, letter)


@pytest.fixture
def box(runtime: Path, session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mail:
    monkeypatch.chdir(tmp_path)
    set_states(session, main="running", worker="running", gone="ended")
    return Mail(session)


def test_a_message_of_the_user_is_stored_with_a_receipt(box: Mail) -> None:
    done = mail("send", "--to", "worker", "--summary", "a word", "hello there")
    [delivery] = box.take("worker")
    envelope = delivery.envelope
    assert (envelope.body, envelope.summary, envelope.kind) == ("hello there", "a word", "message")
    assert (envelope.sender.name, envelope.sender.kind, envelope.sender.session) == ("user", "human", box.session.id)
    assert (done.exit_code, done.stdout) == (0, f"stored for worker as {envelope.id}\n")
    [row] = mail_json("send", "--to", "main", "hi")
    assert row["receipt"]["id"] == box.take("main")[0].envelope.id
    assert (row["recipient"], row["receipt"]["transport"], row["refusal"]) == ("main", "file", None)


def test_a_broadcast_reaches_all_running_agents_and_reports_refusals(box: Mail) -> None:
    done = mail("send", "--to", "*", "all of you")
    assert [line.split(" as ")[0] for line in done.stdout.splitlines()] == ["stored for main", "stored for worker"]
    groups = {box.take(name)[0].envelope.group for name in ("main", "worker")}
    assert len(groups) == 1
    os.truncate(box.session.directory / "mail" / "worker" / "000001.log", 64 * 1024 * 1024)
    done = mail("send", "--to", "*", "all of you")
    assert done.exit_code == 2
    assert done.stdout.startswith("stored for main as ")
    assert "'worker'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["send", "--to", "wroker", "hi"], "'wroker'; did you mean worker?"),
        (["send", "--to", "user", "hi"], "'user'"),
        (["send", "--to", "gone", "hi"], "'gone'"),
        (["send", "--to", "../../x", "hi"], "'../../x'"),
        (["send", "--to", "worker", " \n"], "the text of the message is empty"),
        (["send", "--to", "worker", "\udcff"], "the text of the message is not UTF-8"),
        (["send", "--to", "worker", "--summary", "\udcff", "hi"], "the text of the message is not UTF-8"),
        (["send", "--to", "worker", "--kind", "idle", "{}"], "idle"),
        (["send", "--to", "worker", "--kind", "task_assignment", "do it"], "JSON object"),
        (["send", "--to", "worker", "--kind", "shutdown_request", "{}"], "use `coterie stop`"),
        (["send", "--to", "worker", "--kind", "plan_approval_response", "{}"], "use `coterie approvals`"),
        (["send", "--to", "worker", "--kind", "permission_response", "{}"], "use `coterie approvals`"),
        (["send", "--to", "uds:here", "hi"], "'uds:here'"),
        (["send", "--to", "worker", "--session", "1999", "hi"], "'1999'"),
        (["read", "../worker"], "'../worker'"),
        (["read", "wroker"], "'wroker'; did you mean worker?"),
        (["sweep", "wroker"], "'wroker'; did you mean worker?"),
    ],
)
def test_invalid_mail_name_or_authority_is_refused_in_one_line(box: Mail, arguments: list[str], reason: str) -> None:
    assert reason in refusal(mail(*arguments))
    assert not box.take("worker")
    assert not (box.session.directory / "mail" / "wroker").exists()


def test_send_reads_the_text_from_standard_input(box: Mail) -> None:
    assert mail("send", "--to", "worker", "-", stdin="zwei\nZeilen ☃\n".encode()).exit_code == 0
    assert box.take("worker")[0].envelope.body == "zwei\nZeilen ☃"
    assert "byte 2 " in refusal(mail("send", "--to", "worker", "-", stdin=b"a\xff"))
    assert refusal(mail("send", "--to", "worker", "-", stdin="é".encode() * 600_000))


def test_a_disk_error_or_a_damaged_roster_is_a_failure_in_one_line(box: Mail) -> None:
    (box.session.directory / "mail").write_text("in the way")
    done = mail("send", "--to", "worker", "hi")
    assert (done.exit_code, "'worker'" in done.stderr) == (1, True)
    (box.session.directory / "roster.json").unlink()
    assert (mail("list").exit_code, mail("list").stdout) == (0, "")
    assert "no roster" in refusal(mail("sweep"))
    assert "`coterie mail list`" in refusal(mail("send", "--to", "*", "hi"))
    (box.session.directory / "roster.json").write_text("{")
    done = mail("list")
    assert (done.exit_code, done.stderr.count("\n"), "roster.json" in done.stderr) == (1, 1, True)


def test_list_counts_pending_messages_also_of_abandoned_mailboxes_and_sessions(box: Mail) -> None:
    box.store(box.make("one", created=box.clock.now() - 7_300), box.make("two"))
    lines = [line.split() for line in mail("list").stdout.splitlines()]
    assert lines[0] == ["NAME", "STATE", "START", "WAITING", "BYTES", "OLDEST"]
    assert lines[1] == ["main", "running", "1", "0", "0", "-"]
    assert (lines[2][:4], lines[2][5:]) == (["worker", "running", "1", "2"], ["2", "h"])
    assert lines[3] == ["gone", "ended", "1", "0", "0", "-"]
    box.take("worker", acknowledged=1)
    mail("send", "--to", f"bridge:{OTHER}", "hi")
    box.leave("worker")
    *_, left, waiting = [line.split() for line in mail("list").stdout.splitlines()]
    assert left[:4] == ["worker", "left", "-", "1"]
    assert (waiting[:4], waiting[5:]) == ([f"bridge:{OTHER}", "down", "-", "1"], ["0", "s"])
    rows = [(row["name"], row["state"], row["incarnation"], row["messages"]) for row in mail_json("list")]
    assert rows[2:] == [("worker", "left", None, 1), (f"bridge:{OTHER}", "down", None, 1)]


def test_read_acknowledges_nothing_and_skips_a_damaged_record(box: Mail) -> None:
    letters = [box.make("one"), box.make("two", summary="in short"), box.make("three")]
    box.store(*letters[:2])
    box.take("worker", acknowledged=1)
    with (box.session.directory / "mail" / "worker" / "000001.log").open("ab") as log:
        log.write(b'\n{"torn": ')
    box.store(letters[2])
    for _ in range(2):
        shown = [msgspec.json.decode(line)["id"] for line in mail("read", "worker", "--json").stdout.splitlines()]
        assert shown == [letter.id for letter in letters[1:]]
    assert [delivery.envelope.body for delivery in box.take("worker")] == ["two", "three"]


def test_read_shows_the_sender_and_sanitizes_the_text(box: Mail) -> None:
    letter = box.make("red \x1b[31m\x07\u202e\nbell", summary="in short", expires=box.clock.now() - 1)
    box.store(letter)
    head, *body = mail("read", "worker").stdout.splitlines()
    assert head.endswith(f"  main (lead) -> worker  {letter.id}  expired")
    assert body == ["    in short", "", "    red ", "    bell"]


def test_dead_letters_are_listed_with_their_reasons(box: Mail) -> None:
    box.add_dead_letter(box.make("too late"))
    box.add_dead_letter(None, "corrupt")
    lines = mail("dead").stdout.splitlines()
    assert lines[0].endswith("  worker: expired, in a test")
    assert lines[1].strip() == "main (lead) -> worker: too late"
    assert lines[3].strip() == r"11 bytes: b'\x00 torn \x1b[2J'"
    first, second = mail_json("dead")
    assert first["envelope"]["body"] == "too late"
    assert (second["envelope"], base64.b64decode(second["raw"])) == (None, b"\x00 torn \x1b[2J")


def test_a_dead_letter_is_sent_again_once_as_a_new_message_and_no_longer_listed(box: Mail) -> None:
    old = box.make("too late", created=1.0, expires=2.0, incarnation=7)
    box.add_dead_letter(old)
    number = mail_json("dead")[0]["number"]
    receipt = mail_json("dead", "--resend", str(number))
    [delivery] = box.take("worker")
    assert delivery.envelope.id == receipt["id"] != old.id
    assert (delivery.envelope.body, delivery.envelope.sender) == ("too late", old.sender)
    assert receipt["id"] in refusal(mail("dead", "--resend", str(number)))
    assert len(box.take("worker")) == 1
    assert mail_json("dead") == []
    assert "--all lists the 1 " in mail("dead").stderr
    [row] = mail_json("dead", "--all")
    assert (row["number"], row["resent"]["id"]) == (number, receipt["id"])
    assert mail("dead", "--all").stdout.splitlines()[2].endswith(f" as {receipt['id']}")


def test_sending_again_after_a_failure_or_a_crash_delivers_once(box: Mail) -> None:
    box.add_dead_letter(box.make("too late"))
    [row] = mail_json("dead")
    with box.open() as mail_of_session:
        id_ = mail_of_session.dead_letters.begin_resend(row["number"], 0.0)
    box.store(box.make("too late", id=id_))  # and the shell was killed here
    assert mail_json("dead", "--resend", str(row["number"]))["id"] == id_
    assert [delivery.envelope.id for delivery in box.take("worker")] == [id_]


def test_a_dead_letter_stays_if_it_cannot_be_sent_again(box: Mail) -> None:
    box.add_dead_letter(box.make("too late"))
    number = str(mail_json("dead")[0]["number"])
    box.leave("worker")
    assert "'worker'" in refusal(mail("dead", "--resend", number))
    assert [str(row["number"]) for row in mail_json("dead")] == [number]
    assert mail("dead", "--resend", number, "--all").exit_code == 2


@pytest.mark.parametrize(
    ("reason", "kind"), [("bad_mac", "message"), ("refused", "shutdown_request"), ("corrupt", None)]
)
def test_resend_refuses_unproven_mail_and_authority(box: Mail, reason: DeadReason, kind: str | None) -> None:
    box.add_dead_letter(None if kind is None else box.make(kind=kind), reason)
    assert refusal(mail("dead", "--resend", str(mail_json("dead")[0]["number"])))
    assert "99" in refusal(mail("dead", "--resend", "99"))
    assert not box.take("worker")


def test_a_held_message_is_released_or_dropped_and_sent_again(box: Mail) -> None:
    letter, dropped = (box.make(body, session=OTHER) for body in ("from afar", "far away"))
    box.hold(letter)
    head, body = mail("held").stdout.splitlines()
    assert head.endswith(f"  main (peer) of {OTHER} -> main  {letter.id}")
    assert body == "    from afar"
    assert offered("mail", "held", "--release", "") == [letter.id]
    assert mail("held", "--release", letter.id).stdout == f"stored for main as {letter.id}\n"
    assert mail_json("held") == []
    assert [delivery.envelope.id for delivery in box.take("main", acknowledged=1)] == [letter.id]
    box.hold(dropped)
    assert mail_json("held", "--drop", dropped.id) == {"dropped": dropped.id}
    [dead] = mail_json("dead")
    assert dead["envelope"]["id"] == dropped.id
    assert repr(dropped.id) in refusal(mail("held", "--release", dropped.id))
    assert mail("held", "--release", "a", "--drop", "b").exit_code == 2
    assert mail("dead", "--resend", str(dead["number"])).exit_code == 0
    assert [delivery.envelope.body for delivery in box.take("main")] == ["far away"]


def test_mail_for_a_session_that_is_not_running_is_queued_listed_and_dropped(box: Mail) -> None:
    assert box.session.id in mail("outgoing").stderr
    assert "; queued here" in mail("send", "--to", f"bridge:{OTHER}", "far away").stdout
    assert len(list(box.session.directory.glob(f"mail/outgoing/{OTHER}/*.json"))) == 1
    id_ = mail_json("outgoing")[0]["envelope"]["id"]
    head, body = mail("outgoing").stdout.splitlines()
    assert head.endswith(f"  user (human) -> main of bridge:{OTHER}  {id_}")
    assert body == "    far away"
    [row] = mail_json("outgoing")
    assert (row["address"], row["envelope"]["id"]) == (f"bridge:{OTHER}", id_)
    assert offered("mail", "outgoing", "--drop", "") == [id_]
    assert mail_json("outgoing", "--drop", id_) == {"dropped": id_}
    assert repr(id_) in refusal(mail("outgoing", "--drop", id_))
    assert mail_json("outgoing") == []
    [dead] = mail_json("dead")
    assert (dead["reason"], dead["mailbox"], dead["envelope"]["id"]) == ("refused", f"bridge:{OTHER}", id_)
    assert mail_json("dead", "--resend", str(dead["number"]))["state"] == "waiting"


def test_sweep_dead_letters_abandoned_mail_and_named_mail_of_ended_agents(box: Mail) -> None:
    box.store(box.make("one"))
    assert box.session.id in mail("sweep").stderr
    assert "'worker'" in refusal(mail("sweep", "worker"))
    set_states(box.session, worker="ended")
    assert mail_json("sweep") == []
    assert mail_json("sweep", "worker", "gone") == [{"name": "worker", "buried": 1}, {"name": "gone", "buried": 0}]
    set_states(box.session, worker="idle")
    box.store(box.make("two"))
    box.leave("worker")
    assert mail("sweep").stdout.startswith("worker: 1 dead letter")
    assert [(row["reason"], row["envelope"]["body"]) for row in mail_json("dead")] == [
        ("recipient_ended", "one"),
        ("recipient_ended", "two"),
    ]
    assert [row["name"] for row in mail_json("list")] == ["main", "gone"]
