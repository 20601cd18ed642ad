"""Model of a mailbox whose writers and reader are processes that are stopped, fail or are killed."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.files import check_record, frame_record
from coterie.mailbox.contract import Delivery
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.transports.file.transport import Durability
from tests.mailbox.file_mail import Disk, envelope, transport
from tests.mailbox.transports.file.step_controller import SteppedProcess, Zygote
from tests.mailbox.transports.file.step_process import READER, SYNCED, Command, Outcome, Place, Verdict

SENDERS = ("bob", "cyd", "dan")
EVERYBODY = (READER, *SENDERS)

Reading = Literal["take", "acknowledge", "close"]
READINGS: tuple[Reading, ...] = ("take", "take", "acknowledge", "close")
"""Commands of a reader; the first one opens the mailbox."""
Fault = Literal["none", "kill", "tear and kill", "tear", "fail"]
FAILING: dict[Fault, set[str]] = {
    "tear and kill": {"write"},
    "tear": {"write"},
    "fail": {"write", "fsync", "rename", "cut"},
}
"""Operations at which each fault can happen; other faults can happen at any operation."""
_FAR = 6
"""Limit of steps."""


@attrs.define(eq=False)
class Outgoing:
    """State of one sender, which sends a message again until it gets the receipt or gives up."""

    sequence: int = 0
    pending: Envelope | None = None


@attrs.define(eq=False, kw_only=True)
class MailModel:
    """A mailbox with three writers and one reader, and the results that each of them got."""

    zygote: Zygote
    root: Path
    durability: Durability
    processes: dict[str, SteppedProcess] = attrs.field(factory=dict)
    senders: dict[str, Outgoing] = attrs.field(factory=lambda: {name: Outgoing() for name in SENDERS})
    sent: dict[MessageId, Envelope] = attrs.field(factory=dict)
    copied: set[MessageId] = attrs.field(factory=set)
    """Messages sent again under their ids: a mailbox remembers ids for a limited time, a transcript forever."""
    torn: set[bytes] = attrs.field(factory=set)
    """Parts of torn messages in the log."""
    faulted: set[str] = attrs.field(factory=set)
    """Processes that may fail, because an operation of their command failed."""
    receipted: set[MessageId] = attrs.field(factory=set)
    transcript: set[MessageId] = attrs.field(factory=set)
    acknowledged: set[MessageId] = attrs.field(factory=set)
    over: set[MessageId] = attrs.field(factory=set)
    """Messages that need not be redelivered: acknowledged by a reader, or in the transcript from the start."""
    was_cut: bool = False
    """True if the power was cut, after which other records than torn ones may be incomplete."""
    is_open: bool = False
    knows: bool = False
    """True if the current reader knows the transcript."""
    taken: list[MessageId] = attrs.field(factory=list)
    """Messages taken by the current reader."""
    last: dict[str, int] = attrs.field(factory=dict)
    """Last sequence number that the current reader got from each sender."""

    def is_busy(self, who: str) -> bool:
        """True if the process is executing a command."""
        return who in self.processes and self.processes[who].command is not None

    def begin_send(self, name: str, size: int = 40, *, gives_up: bool = False) -> None:
        """Start sending an unconfirmed message again, or a new one."""
        if self.is_busy(name):
            return
        sender = self.senders[name]
        if sender.pending is None or gives_up:
            sender.sequence += 1
            sender.pending = envelope(sender.sequence, "x" * size, sender=name)
            self.sent[sender.pending.id] = sender.pending
        else:
            self.copied.add(sender.pending.id)
        self._begin(name, Command(do="send", envelope=sender.pending))

    def begin_reading(self, do: Reading, *, knows: bool, count: int) -> None:
        """Open the mailbox if it is not open, or else start the command *do*."""
        if self.is_busy(READER):
            return
        if not self.is_open:
            self.knows = knows
            self.over |= self.transcript if knows else set()
            self._begin(READER, Command(do="open", ids=tuple(self.transcript) if knows else ()))
        elif do == "take":
            self._begin(READER, Command(do="take", limit=count or None))
        elif do == "acknowledge":
            # Every other message first, so that there are gaps.
            waiting = [id_ for id_ in self.taken if id_ not in self.acknowledged]
            ids = tuple(waiting[::2] + waiting[1::2])[: count or None]
            self.over.update(ids)
            self._begin(READER, Command(do="acknowledge", ids=ids))
        else:
            self._begin(READER, Command(do="close"))

    def step(self, who: str, count: int) -> None:
        """Let a process continue by *count* steps, or until it waits for a lock."""
        for _ in range(count):
            if not self.is_busy(who):
                return
            before = self.processes[who].at
            self.processes[who].let("go")
            self._receive_report(who)
            if before is not None and before.operation == "lock" and before == self.processes[who].at:
                return  # it can get the lock only after another process has continued

    def can_fail(self, who: str, fault: Fault) -> bool:
        """True if the process is at a step at which the fault can happen."""
        at = self.processes[who].at if self.is_busy(who) else None
        return at is not None and at.operation in FAILING.get(fault, {at.operation})

    def fail(self, who: str, fault: Fault, share: float) -> None:
        """Continue to a nearby step at which the fault can happen, and inject it; *share* is that of a torn write."""
        for _ in range(_FAR):
            if not self.can_fail(who, fault):
                self.step(who, 1)
        if not self.can_fail(who, fault):
            return
        process = self.processes[who]
        assert process.at is not None
        if fault == "fail":
            self._let_fail(who, "fail")
        elif fault.startswith("tear"):
            self._tear(who, int(process.at.size * share))
        if fault.endswith("kill"):
            self.kill(who)

    def kill(self, who: str) -> None:
        """Kill a process; the next command goes to a new one."""
        if (process := self.processes.pop(who, None)) is not None:
            process.kill()
            self.is_open = self.is_open and who != READER

    def rush(self) -> None:
        """Let all processes run concurrently until all commands are done."""
        busy = [who for who in EVERYBODY if self.is_busy(who)]
        for who in busy:
            self.processes[who].let("free")
        for who in busy:
            self._receive_report(who)

    def cut_power(self, *, share: float, keeps_length: bool) -> None:
        """Kill all processes and lose unsynced bytes but a *share*; acknowledgements are never synced."""
        self.crash()
        synced = Path(f"{self.root}{SYNCED}")
        synced.touch()  # if no process has begun
        disk = Disk(synced={int(inode): int(size) for inode, size in map(str.split, synced.read_text().splitlines())})
        disk.cut_power(self.root / READER, share, keeps_length=keeps_length)
        self.acknowledged.clear()
        self.was_cut = True

    def end(self) -> None:
        """Kill all processes, read the remaining mail, and compare it with the promises."""
        try:
            self.crash()
            self._read_all(knows=False)
            assert self.receipted - self.over <= set(self.taken), "what was not acknowledged does not come again"
            self.crash()
            self._read_all(knows=True)
            assert not self.taken, "there was more than the last reader got"
            self._check_end()
        finally:
            self.crash()

    def _read_all(self, *, knows: bool) -> None:
        for do in READINGS if knows else READINGS[:2]:
            self.begin_reading(do, knows=knows, count=0)
            self.rush()

    def crash(self) -> None:
        """Kill all processes."""
        for who in list(self.processes):
            self.kill(who)

    def _begin(self, who: str, command: Command) -> None:
        if who not in self.processes:
            self.processes[who] = self.zygote.fork(Place(root=str(self.root), durability=self.durability))
        self.faulted.discard(who)
        self._note(who, command, self.processes[who].begin(command))

    def _receive_report(self, who: str) -> None:
        command = self.processes[who].command
        assert command is not None
        self._note(who, command, self.processes[who].wait_for_step())

    def _tear(self, who: str, size: int) -> None:
        command, before = self.processes[who].command, self._logged()
        self._let_fail(who, size)
        # Otherwise it was another file, or a restored copy, which the log has anyway.
        if command is not None and command.envelope is not None and self._logged() > before:
            self.torn.add(frame_record(command.envelope.to_bytes())[:size].strip(b"\n"))

    def _logged(self) -> int:
        return sum(path.stat().st_size for path in self.root.rglob("*.log"))

    def _let_fail(self, who: str, verdict: Verdict) -> None:
        self.faulted.add(who)
        self.processes[who].let(verdict)
        self._receive_report(who)

    def _note(self, who: str, command: Command, outcome: Outcome | None) -> None:
        """Record the result of a command."""
        if outcome is None:
            return
        if outcome.error is not None:
            assert outcome.error == "MailboxFailed", outcome.error
            assert who in self.faulted, f"{command.do} of {who} failed although no operation did"
        elif command.envelope is not None:
            self.receipted.add(command.envelope.id)
            self.senders[who].pending = None
        elif command.do == "open":
            self.is_open, self.taken, self.last = True, [], {}
        elif command.do == "close":
            self.is_open = False
        elif command.do == "acknowledge":
            self.acknowledged.update(command.ids)
        for delivery in outcome.deliveries:
            self._arrive(delivery)

    def _arrive(self, delivery: Delivery) -> None:
        """Add a delivered message to the transcript."""
        message = delivery.envelope
        id_, name = message.id, message.sender.name
        assert self.sent.get(id_) == message, "nobody sent this"
        assert id_ not in self.taken, "delivered twice to one reader"
        assert not self.knows or id_ not in self.transcript, "delivered to one who has it in the transcript"
        assert message.sequence > self.last.get(name, 0), "out of order"
        if id_ not in self.copied:
            assert id_ not in self.acknowledged, "delivered after it was acknowledged"
            assert delivery.is_again or id_ not in self.transcript, "again, and does not say so"
        self.last[name] = message.sequence
        self.taken.append(id_)
        self.transcript.add(id_)

    def _check_end(self) -> None:
        assert self.receipted <= self.transcript, "a receipted message is lost"
        letters = [letter for _, letter in DeadLetters(self.root / "dead").pending()]
        assert {letter.reason for letter in letters} <= {"corrupt"}
        assert self.was_cut or {letter.raw for letter in letters} == {
            piece for piece in self.torn if not _is_whole(piece)
        }
        assert transport(self.root).backlog(READER).messages == 0, "what is read still counts"


def _is_whole(piece: bytes) -> bool:
    """True if at most the newline is missing, or only the newline was written."""
    try:
        check_record(piece)
    except ValueError:
        return not piece
    return True
