"""Processes of a session are killed and stopped at random: none is left, nothing is lost, no budget is exceeded."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import AgentChanged, CleanedUp
from coterie.clock import Clock
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.mailbox.transports.file.segment_reader import parse_record
from coterie.orchestrator.cli.views.event_text import event_text
from coterie.orchestrator.doctor.checks import check_machine, check_session
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.processes.cleanup_daemon import TITLE as CLEANUP_TITLE
from coterie.orchestrator.processes.zygote import TITLE as ZYGOTE
from coterie.process_identity import process_start_time
from coterie.session_directory import MAIL_DIRECTORY, SessionDirectory
from tests.processes.session_record import processes_of

TREE_BUDGET = Decimal("1.00")
"""Dollars for a tree of six agents: again not enough for all at the same time."""
HARMS = 6
"""Maximum number of kills in a round."""
WEIGHTS = {"root": 1, "cleanup": 2, "zygote": 2, "agent": 6, "shell": 2}
"""Weights of the kinds of processes to kill."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 2), *(pytest.param(seed, 10, marks=pytest.mark.soak) for seed in range(20))]
)
async def test_no_process_is_left_after_random_kills_and_a_kill_of_the_root(
    project: Path, seed: int, rounds: int
) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        with trio.fail_after(60), _open_root_process(project, chance) as victim:
            await victim.inject_faults()
            await victim.end()
            await victim.check(f"seed {seed}, round {number}")


@contextlib.contextmanager
def _open_root_process(project: Path, chance: random.Random) -> Iterator["RootProcess"]:
    """A running root in a separate terminal session; nothing of it is left if the test fails."""
    command = [sys.executable, "-m", "tests.processes.chaos_root", str(project), str(TREE_BUDGET)]
    errors = project.with_name("errors.log")
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True) as root,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(root.kill)
        assert root.stdout is not None
        session = SessionDirectory.find(root.stdout.readline().decode().strip())
        stack.callback(_kill_all_of, session)
        yield RootProcess(root, psutil.Process(root.pid), session, chance, errors)


@attrs.define(eq=False)
class RootProcess:
    popen: subprocess.Popen[bytes]
    root: psutil.Process
    session: SessionDirectory
    chance: random.Random
    errors: Path
    """Output of the root, its cleanup daemon and the repair."""
    has_cleanup: bool = True
    """True if a process could notice the end of the root."""
    seen: set[psutil.Process] = attrs.field(factory=set)
    strokes: list[str] = attrs.field(factory=list)

    async def inject_faults(self) -> None:
        """Kill some of its processes; return early if it has ended or is to be killed."""
        for _ in range(self.chance.randint(1, HARMS)):
            await trio.sleep(self.chance.uniform(0.0, 1.0))  # no synchronisation: when it strikes is the point
            kinds = self._kinds()
            if not kinds:
                return
            names = sorted(kinds)
            [kind] = self.chance.choices(names, [WEIGHTS[name] for name in names])
            number = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
            if kind == "root" and number == signal.SIGKILL:
                return
            self._send_signal(self.chance.choice(kinds[kind]), kind, number)

    async def end(self) -> None:
        """Kill the root, alone or together with its cleanup daemon, or ask it to end; return when it has."""
        if self.popen.poll() is None and self.chance.random() < 0.6:
            await self._wait_for_cleanup_daemon()
            if self.chance.random() < 0.1:
                self._send_signal(self.root, "root", signal.SIGSTOP)  # so that it does not notice
                for cleanup in self._kinds().get("cleanup", []):
                    self.has_cleanup = False
                    self._send_signal(cleanup, "cleanup", signal.SIGKILL)
            self._kinds()
            self._send_signal(self.root, "root", signal.SIGKILL)
            await trio.to_thread.run_sync(self.popen.wait)
        else:
            self._kinds()
            self._continue()
            self.popen.terminate()
            assert await trio.to_thread.run_sync(self.popen.wait) == 0

    async def check(self, when: str) -> None:
        """Check the state after the end of a root: clean by its cleanup daemon, else after one command."""
        if not self.has_cleanup:
            command = [sys.executable, "-P", "-m", "coterie", "doctor", "--fix", "--session", self.session.id]
            await trio.run_process(command, check=False, capture_stdout=True)
        # The last cleanup daemon may still be running, under its own name or as the doctor.
        with trio.move_on_after(10):
            while self._alive() or self._findings():  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.05)
        assert self._alive() == [], (when, self._history())
        assert self._findings() == [], (when, self.popen.returncode, self._history())
        spent = sum(line.cost_usd for line in read_ledger(self.session.directory / LEDGER).lines)
        assert spent <= TREE_BUDGET, when
        self._check_reports(when)

    def _check_reports(self, when: str) -> None:
        """Each finished agent has reported to its parent; the report is in the parent's mailbox."""
        observed = list(read_session(self.session.directory))
        changes = [one.event for one in observed if isinstance(one.event, AgentChanged)]
        parents = {event.name: event.parent for event in changes}
        told = {(parent, name, start) for parent, name, start in _reports(self.session)}
        done = {(event.parent, event.name, event.incarnation) for event in changes if event.state == "done"}
        assert done <= told, when
        finished = {(parents[one.agent], one.agent) for one in observed if _is_finished(one)}
        assert finished <= {(parent, name) for parent, name, _ in told}, when

    def _history(self) -> list[str]:
        """Return facts that explain a failure: kills, cleanup daemons, and unexpected errors."""
        told = [one for one in read_session(self.session.directory) if isinstance(one.event, CleanedUp | LayerFailed)]
        words = [f"{one.at:.2f} {event_text(one.event)}" for one in told if one.event is not None]
        return [*self.strokes, *words, self.errors.read_text()]

    def _alive(self) -> list[psutil.Process]:
        return [*filter(_is_alive, self.seen), *processes_of(self.session)]

    def _findings(self) -> list[DoctorFinding]:
        found = [*check_machine(self.session), *check_session(self.session.id, Clock())]
        return [finding for finding in found if not finding.is_harmless]

    def _send_signal(self, process: psutil.Process, kind: str, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
            self.strokes.append(f"{time.time():.2f} {kind} {process.pid} {number.name}")

    def _continue(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.root.send_signal(signal.SIGCONT)

    async def _wait_for_cleanup_daemon(self) -> None:
        """If root and cleanup daemon are killed together, strays remain; no more is promised."""
        while self.popen.poll() is None and not any(map(_is_well, self._kinds().get("cleanup", ()))):
            self._continue()
            await trio.sleep(0.01)

    def _kinds(self) -> dict[str, list[psutil.Process]]:
        """Return the processes of the tree by kind; none if it has ended. All are remembered."""
        if self.popen.poll() is not None:
            return {}
        kinds = {"root": [self.root]}
        for process in self.root.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    kinds.setdefault(_kind(process.name()), []).append(process)
                    self.seen.add(process)
        return kinds


def _kind(name: str) -> str:
    if name in (CLEANUP_TITLE, ZYGOTE):
        return "cleanup" if name == CLEANUP_TITLE else "zygote"
    return "agent" if name.startswith("coterie") else "shell"


def _is_well(process: psutil.Process) -> bool:
    """True if no kill is pending: a process killed a moment ago may look alive but does nothing."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        [pending] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("ShdPnd:")]
        return not pending & (1 << signal.SIGKILL - 1)
    return False


def _is_alive(process: psutil.Process) -> bool:
    return process_start_time(process.pid) is not None and process.is_running()


def _is_finished(observed: SessionEvent) -> bool:
    return isinstance(observed.event, Finished) and observed.event.reason == "completed"


def _kill_all_of(session: SessionDirectory) -> None:
    for process in processes_of(session):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _reports(session: SessionDirectory) -> Iterator[tuple[str, str, int]]:
    """Return all reports ever stored by recipient, sender and incarnation, read or not."""
    for path in (session.directory / MAIL_DIRECTORY).glob("*/*.log"):
        for line in path.read_bytes().splitlines():
            try:
                envelope = parse_record(line)
            except EnvelopeCorrupt:
                continue  # its writer was killed in the middle of it
            if envelope.kind == "task_notification":
                yield path.parent.name, envelope.sender.name, envelope.sender.incarnation
