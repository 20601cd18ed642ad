"""`coterie mail` programs that share mailboxes with agent processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.session_directory import SessionDirectory

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE = 20

AGENT = """
import sys
import trio
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import MailRecord
from coterie.clock import Clock
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.session_directory import SessionDirectory
from tests.orchestrator.session_writer import open_writer

async def live(session, name):
    with SessionMail.open(session, Clock()) as office, open_writer(session.directory, name, Clock()) as agent:
        async with office.files.open_inbox(name, 1, seen=agent.transcript.loaded.mail) as inbox:
            print("ready", flush=True)
            while True:
                await inbox.wait()
                for delivery in inbox.take_nowait():
                    agent.conversation.append("user", [text_block(delivery.envelope.body)])
                    agent.transcript.record(agent.conversation, MailRecord(ids=[delivery.envelope.id]))
                    await inbox.acknowledge([delivery.envelope.id])
                    print(delivery.envelope.body, flush=True)

trio.run(live, SessionDirectory.find(sys.argv[1]), "worker")
"""


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line of standard output."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def event(process: subprocess.Popen[str]) -> Any:
    """Return the next line, parsed as JSON."""
    return msgspec.json.decode(line(process))


def end(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """Send a signal, and return the exit code and standard error."""
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, said


@pytest.fixture
def session(project: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
    """A session with a worker, the newest of the working directory."""
    monkeypatch.chdir(project)
    made = SessionDirectory.create(project, Clock(), task="t", model="m")
    with SessionMail.open(made, Clock()) as office:
        trio.run(office.roster.join, "worker")
        trio.run(office.roster.join, "main")
    return made


@contextmanager
def running(*command: str, env: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed when the block ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def agent(session: SessionDirectory) -> Iterator[subprocess.Popen[str]]:
    """The worker as a process that owns its mailbox."""
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    with running(sys.executable, "-P", "-c", AGENT, session.id, env=path) as program:
        assert line(program) == "ready"
        yield program


def mail(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", "mail", *arguments]


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A started `coterie mail watch`."""
    with running(*mail("watch", *arguments)) as program:
        assert program.stderr is not None
        assert program.stderr.readline().startswith("watching session ")
        yield program


def send(text: str) -> None:
    subprocess.run(mail("send", "--to", "worker", text), check=True, capture_output=True, timeout=PATIENCE)


def test_watch_shows_a_message_when_stored_and_when_delivered(session: SessionDirectory) -> None:
    with agent(session) as worker, watching("--json") as watch:
        send("do it")
        assert line(worker) == "do it"
        stored, delivered = event(watch), event(watch)
        assert (stored["kind"], stored["mailbox"], stored["envelope"]["body"]) == ("stored", "worker", "do it")
        assert (delivered["kind"], delivered["mailbox"], delivered["id"]) == ("delivered", "worker", stored["id"])
        assert stored["session"] == delivered["session"] == session.id
        assert stored["at"] <= delivered["at"]
        assert end(watch, signal.SIGINT) == (130, "")


def test_watch_shows_held_dropped_and_dead_messages(session: SessionDirectory) -> None:
    sender = Sender(name="main", incarnation=1, session="20260101-000000-abcdef", kind="peer")
    letter = Envelope(sender=sender, recipient=Recipient(name="main"), sequence=1, body="from\x1b[2J afar", created=9.0)
    with SessionMail.open(session, Clock()) as office, watching() as watch:
        trio.run(office.held.hold, letter)
        who = "main (peer) of 20260101-000000-abcdef -> main: from afar"
        assert line(watch).split(" ", 1)[1] == f"held       {who}"
        trio.run(office.held.drop, letter.id)
        assert line(watch).split(" ", 1)[1] == f"dead       {who} (refused: dropped by the user)"


def test_read_command_does_not_disturb_the_owner_of_the_mailbox(session: SessionDirectory) -> None:
    with running(*mail("read", "worker", "--follow", "--json")) as reader:
        send("one")
        assert event(reader)["body"] == "one"
        with agent(session) as worker:
            assert line(worker) == "one"
            send("two")
            assert (line(worker), event(reader)["body"]) == ("two", "two")
        assert end(reader, signal.SIGINT) == (130, "")


def test_mail_of_a_killed_agent_is_readable_and_redelivered(session: SessionDirectory) -> None:
    with agent(session) as worker:
        send("one")
        assert line(worker) == "one"
        assert end(worker, signal.SIGKILL)[0] == -signal.SIGKILL
    send("two")
    done = subprocess.run(mail("read", "worker", "--json"), capture_output=True, check=True, timeout=PATIENCE)
    # The worker printed "one" when it was acknowledged, so it is not in the mailbox now.
    assert [msgspec.json.decode(line)["body"] for line in done.stdout.splitlines()] == ["two"]
    with agent(session) as worker:
        assert line(worker) == "two"
