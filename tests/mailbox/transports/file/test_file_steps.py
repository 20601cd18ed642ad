"""The file mailbox compared with a model, with processes that are stopped in the middle of an operation."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from coterie.mailbox.transports.file.transport import Durability
from tests.mailbox.transports.file.mail_model import EVERYBODY, FAILING, READINGS, SENDERS, Fault, MailModel, Reading
from tests.mailbox.transports.file.step_controller import Zygote, open_zygote
from tests.mailbox.transports.file.step_process import READER, Step

pytestmark = pytest.mark.slow

FAULTS: tuple[Fault, ...] = ("none", "kill", "tear and kill", "tear", "fail")
DURABILITIES: tuple[Durability, ...] = ("process", "power")
MEMORY = next((path for path in (Path("/dev/shm"),) if path.is_dir()), None)  # noqa: S108 - for what is made there
"""Power cuts are only simulated, and on a disk most of the time would go into syncs."""
STEPS = st.integers(0, 12)
# Nothing that is drawn depends on how far a process came, because that may differ in a replay.
SIZES = st.sampled_from([0, 10, 300])


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """Zygote that forks the processes of all tests here."""
    with open_zygote() as zygote:
        yield zygote


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in which a sync costs nothing."""
    with tempfile.TemporaryDirectory(prefix="coterie-steps-", dir=MEMORY) as directory:
        yield Path(directory)


class SteppedMail(RuleBasedStateMachine):
    """Processes run in any interleaving; every message with a receipt is in the transcript once, in order."""

    mail: MailModel

    def __init__(self, zygote: Zygote) -> None:
        super().__init__()
        self.zygote = zygote

    @initialize(durability=st.sampled_from(DURABILITIES))
    def begin(self, durability: Durability) -> None:
        """Create an empty mailbox with idle processes."""
        root = Path(tempfile.mkdtemp(prefix="coterie-steps-", dir=MEMORY)) / "mail"
        self.mail = MailModel(zygote=self.zygote, root=root, durability=durability)

    def teardown(self) -> None:
        """Kill all processes where they are, cut the power, and read the rest."""
        if hasattr(self, "mail"):
            try:
                self.cut_power(share=0.0, keeps_length=False)
                self.mail.end()
            finally:
                shutil.rmtree(self.mail.root.parent)

    @rule(name=st.sampled_from(SENDERS), size=SIZES, gives_up=st.booleans(), steps=STEPS)
    def send(self, name: str, size: int, steps: int, *, gives_up: bool) -> None:
        """Start sending."""
        self.mail.begin_send(name, size, gives_up=gives_up)
        self.mail.step(name, steps)

    @rule(do=st.sampled_from(READINGS), knows=st.booleans(), count=st.integers(0, 4), steps=STEPS)
    def read(self, do: Reading, count: int, steps: int, *, knows: bool) -> None:
        """Start the next command of the reader."""
        self.mail.begin_reading(do, knows=knows, count=count)
        self.mail.step(READER, steps)

    @rule(who=st.sampled_from(EVERYBODY), steps=STEPS)
    def go_on(self, who: str, steps: int) -> None:
        """Let one process continue while the others are stopped."""
        self.mail.step(who, steps)

    @rule(who=st.sampled_from(EVERYBODY), steps=STEPS, fault=st.sampled_from(FAULTS), share=st.floats(0, 1))
    def fail(self, who: str, steps: int, fault: Fault, share: float) -> None:
        """Let one process continue until an operation fails or it is killed."""
        self.mail.step(who, steps)
        self.mail.fail(who, fault, share)

    @rule(share=st.floats(0, 1), keeps_length=st.booleans())
    def cut_power(self, *, share: float, keeps_length: bool) -> None:
        """Cut the power if receipts are to survive that."""
        if self.mail.durability == "power":
            self.mail.cut_power(share=share, keeps_length=keeps_length)

    @rule()
    def rush(self) -> None:
        """Let all busy processes run concurrently to their end."""
        self.mail.rush()


def test_stepped_processes_match_the_model(zygote: Zygote) -> None:
    run_machine(zygote, examples=30, steps=40)


@pytest.mark.soak
def test_stepped_processes_match_the_model_with_many_examples(zygote: Zygote) -> None:
    run_machine(zygote, examples=2000, steps=80)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("size", [0, 900])
def test_send_may_be_overtaken_or_fail_at_every_step(zygote: Zygote, memory: Path, size: int, fault: Fault) -> None:
    """*size* is the size of the log before: the segment is to be sealed, or others seal it during the send."""
    operations = set()
    for number in itertools.count():
        with open_mail(zygote, memory / str(number)) as mail:
            send_now(mail, "bob", size)
            at = go_to(mail, "cyd", [partial(mail.begin_send, "cyd")], fault, number)
            if at is not None:
                operations.add(at.operation)
                fail_while_others_go_on(mail, "cyd", fault)
                send_now(mail, "cyd", 0)
                mail.begin_reading("take", knows=False, count=0)
                mail.rush()
        if at is None:
            break
    sorts = {"lock", "write", "unlock", "fsync", "reply"} | ({"chmod", "create"} if size else set())
    assert operations >= sorts & FAILING.get(fault, sorts)


@pytest.mark.parametrize("fault", FAULTS)
def test_reading_may_be_overtaken_or_fail_at_every_step(zygote: Zygote, memory: Path, fault: Fault) -> None:
    """From opening a mailbox with sealed segments and a torn message to closing it after all is read."""
    operations = set()
    for number in itertools.count():
        with open_mail(zygote, memory / str(number)) as mail:
            for size in (900, 900, 40):
                send_now(mail, "bob", size)
            mail.begin_send("bob")
            mail.fail("bob", "tear and kill", 0.5)
            begins = [partial(mail.begin_reading, do, knows=False, count=0) for do in READINGS]
            at = go_to(mail, READER, begins, fault, number)
            if at is not None:
                operations.add(at.operation)
                fail_while_others_go_on(mail, READER, fault)
        if at is None:
            break
    sorts = {"lock", "create", "write", "read", "rename", "remove", "reply"}
    assert operations >= sorts & FAILING.get(fault, sorts)


def run_machine(zygote: Zygote, *, examples: int, steps: int) -> None:
    """Run the state machine with *examples* examples."""
    limits = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    factory = partial(SteppedMail, zygote)
    run_state_machine_as_test(factory, settings=limits)  # type: ignore[arg-type]  # whatever makes one will do


@contextmanager
def open_mail(zygote: Zygote, root: Path) -> Iterator[MailModel]:
    """Open an empty mailbox with power durability, which takes more steps; check its mail at the end."""
    mail = MailModel(zygote=zygote, root=root, durability="power")
    try:
        yield mail
        mail.end()
    finally:
        mail.crash()


def send_now(mail: MailModel, name: str, size: int) -> None:
    """Send to completion; other commands complete too."""
    mail.begin_send(name, size)
    mail.rush()


def go_to(mail: MailModel, who: str, begins: Iterable[Callable[[], None]], fault: Fault, number: int) -> Step | None:
    """Return the step reached after *number* steps at which *fault* can happen; None if there are fewer."""
    for begin in begins:
        begin()
        while mail.is_busy(who):
            number -= mail.can_fail(who, fault)
            if number < 0:
                return mail.processes[who].at
            mail.step(who, 1)
    return None


def fail_while_others_go_on(mail: MailModel, who: str, fault: Fault) -> None:
    """Let others fill and read segments while *who* is stopped at a step, at which *fault* is injected then."""
    for name, size in (("bob", 900), ("dan", 900), ("bob", 40), ("dan", 40)):
        mail.begin_send(name, size)
        mail.step(name, 30)
    if who != READER:
        for do in READINGS[:3]:
            mail.begin_reading(do, knows=False, count=0)
            mail.step(READER, 30)
    mail.fail(who, fault, 0.5)
    mail.rush()
