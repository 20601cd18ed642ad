"""Both ways to start a process: state of the child, its end, and clean-up after failures."""

import contextlib
import errno
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.orchestrator.processes.child_process import CHILDREN, ChildProcess, run_reaper
from coterie.orchestrator.processes.process_start import ProcessStart, ProcessStarter, StartFailed
from coterie.orchestrator.processes.process_starters import ZygoteStarter, open_zygote_starter
from coterie.process_identity import wait_ended
from tests import warm_start
from tests.descriptors import count_descriptors
from tests.processes import child_entries, starter_root
from tests.processes.starter_root import make_start, open_starter

pytestmark = [pytest.mark.slow, pytest.mark.cold_start]

ROOT = Path(__file__).parents[2]
PATIENCE = 20
PATIENCES = (0.005, 0.02, 0.05, 20, 20)
"""Seconds after which a start is cancelled; most are faster."""


@pytest.fixture(autouse=True)
def tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text printed by children as well, whose streams are buffered as usual."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    """In the starting process."""
    before = count_descriptors()
    yield
    assert count_descriptors() == before


@pytest.fixture(params=["plain", "warm"])
async def starter(request: pytest.FixtureRequest, tests_can_be_imported: None) -> AsyncIterator[ProcessStarter]:
    with trio.fail_after(PATIENCE):
        async with open_starter(request.param) as opened:
            yield opened


@pytest.fixture
async def warm(tests_can_be_imported: None, request: pytest.FixtureRequest) -> AsyncIterator[ZygoteStarter]:
    with trio.fail_after(PATIENCE if request.node.get_closest_marker("soak") is None else 900):
        async with open_zygote_starter([child_entries.__name__]) as opened:
            yield opened


@asynccontextmanager
async def running(starter: ProcessStarter, entry: str) -> AsyncIterator[tuple[ChildProcess, trio.SocketStream]]:
    """Start a child with a socket to it; it is killed and reaped when the block ends."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = await starter.start(make_start(entry), [theirs.fileno()])
    async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
        try:
            yield child, stream
        finally:
            child.send_signal_to_group(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await child.wait()


async def child_description(starter: ProcessStarter, start: ProcessStart) -> dict[str, Any]:
    """Return the report of a child about itself."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = await starter.start(start, [theirs.fileno()])
    async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
        facts: dict[str, Any] = msgspec.json.decode(b"".join([chunk async for chunk in stream]))
    assert await child.wait() == 0
    assert facts["pid"] == child.pid
    return facts


async def status_of(starter: ProcessStarter, entry: str, payload: bytes = b"") -> int:
    """Return the exit status of a child that runs to its end."""
    return await (await starter.start(make_start(entry, payload))).wait()


async def test_a_child_is_what_its_start_says(starter: ProcessStarter, tmp_path: Path) -> None:
    """A child has no other descriptor than those passed, and its own random numbers."""
    inherited = os.dup(0)
    os.set_inheritable(inherited, True)  # noqa: FBT003 - its parameter has no name
    start = make_start("describe", b"hello", tmp_path, COTERIE_SESSION="s1", EMPTY="")
    try:
        facts, sibling = [await child_description(starter, start) for _ in range(2)]
    finally:
        os.close(inherited)
    assert facts["payload"] == "hello"
    assert facts["directory"] == str(tmp_path)
    assert facts["environment"] == start.environment
    assert facts["parent"] == os.getpid()
    assert facts["group"] == facts["session"] == facts["pid"]
    assert facts["stdin"] == os.devnull
    assert facts["threads"] == 1
    assert set(facts["handlers"].values()) == {str(signal.SIG_DFL)}
    assert facts["descriptors"] == [0, 1, 2, *facts["passed"]]
    assert not facts["inheritable"]
    assert facts["random"] != sibling["random"]


async def test_child_has_its_title_and_can_use_a_passed_descriptor(starter: ProcessStarter) -> None:
    async with running(starter, "echo") as (child, stream):
        process = Path(f"/proc/{child.pid}")
        assert (process / "cmdline").read_bytes().rstrip(b"\0") == b"coterie tester"
        assert (process / "comm").read_text().strip() == "coterie tester"
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        await stream.send_eof()
        assert await child.wait() == 0


async def test_status_is_what_the_entry_returns_or_1_with_a_traceback(starter: ProcessStarter, tmp_path: Path) -> None:
    assert await status_of(starter, "exit_with", b"7") == 7
    assert await status_of(starter, "leave", b"3") == 3
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        start = make_start("fail", b"for a reason")
        child = await starter.start(start, stdout=out.fileno(), stderr=err.fileno())
        assert await child.wait() == 1
    assert (tmp_path / "out").read_text() == "said"
    assert (tmp_path / "err").read_text().endswith("RuntimeError: for a reason\n")


async def test_signal_is_the_status_with_a_minus_after_a_cancelled_wait(starter: ProcessStarter) -> None:
    async with running(starter, "echo") as (child, _):
        with trio.move_on_after(0) as given_up:
            await child.wait()
        assert given_up.cancelled_caught
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            child.send_signal_to_group(signal.SIGTERM)
            assert await child.wait() == -signal.SIGTERM


async def test_a_stubborn_child_is_killed_with_its_group(starter: ProcessStarter) -> None:
    async with running(starter, "shelter") as (child, stream):
        other = int(await stream.receive_some())
        child.send_signal(signal.SIGTERM)
        child.send_signal_to_group(signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        await wait_gone(other)
        CHILDREN.reap_adopted()


async def test_impossible_start_fails_with_its_reason(starter: ProcessStarter, tmp_path: Path) -> None:
    start = make_start("echo")
    impossible = {
        "ModuleNotFoundError: No module named 'nowhere'": attrs.evolve(start, entry="nowhere:main"),
        "AttributeError: no unknown among the entries": make_start("unknown"),
        "entry function 'os.path'": attrs.evolve(start, entry="os.path"),
        "null byte": make_start("echo", BAD="\0"),
        "missing": attrs.evolve(start, directory=tmp_path / "missing"),
        "before it was ready": make_start("killed_on_the_way"),
    }
    failures = {}
    for reason, each in impossible.items():
        with pytest.raises(StartFailed, match=reason) as failed:
            await starter.start(each)
        failures[reason] = failed.value
    assert failures["missing"].errno == errno.ENOENT
    assert failures["before it was ready"].status == -signal.SIGKILL


async def test_cancelled_start_leaves_no_child(starter: ProcessStarter, tmp_path: Path) -> None:
    """Cancelled before it begins, and while the child is not ready."""
    with trio.move_on_after(0) as cancelled:
        await starter.start(make_start("echo"))
    assert cancelled.cancelled_caught
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(starter.start, make_start("never_ready", COTERIE_TEST_FIFO=str(fifo)))
        pid = int(await trio.Path(fifo).read_text())
        nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(pid)
    assert await status_of(starter, "exit_with", b"0") == 0


async def test_children_outlive_the_zygote_and_the_next_one_gets_its_unanswered_starts(warm: ZygoteStarter) -> None:
    statuses: list[int] = []

    async def start() -> None:
        statuses.append(await status_of(warm, "exit_with", b"5"))

    async with running(warm, "echo") as (_, stream):
        first = warm.zygote
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(start)
            await wait_all_tasks_blocked(0.01)
            os.kill(first, signal.SIGKILL)
        assert statuses == [5] * 5
        assert warm.zygote not in (first, None)
        await stream.send_all(b"still here")
        assert await stream.receive_some() == b"still here"


async def test_orphans_of_a_killed_child_are_adopted_and_reaped(warm: ZygoteStarter) -> None:
    async with trio.open_nursery() as nursery, running(warm, "shelter") as (child, stream):
        other = int(await stream.receive_some())
        nursery.start_soon(run_reaper)
        child.send_signal(signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        assert CHILDREN.adopted() == [other]
        os.kill(other, signal.SIGKILL)
        while CHILDREN.adopted():
            await trio.lowlevel.checkpoint()
        assert not psutil.pid_exists(other)
        nursery.cancel_scope.cancel()


async def test_reaper_ignores_children_that_others_wait_for(warm: ZygoteStarter) -> None:
    child = await warm.start(make_start("exit_with", b"3"))
    await trio.lowlevel.wait_readable(child.pidfd)
    with subprocess.Popen(["/bin/false"]) as process:  # noqa: ASYNC220 - quick
        await wait_ended(process.pid)
        assert not CHILDREN.reap_adopted()
    assert (process.returncode, await child.wait()) == (1, 3)


async def test_stopped_zygote_is_replaced(warm: ZygoteStarter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.orchestrator.processes.fork_handshake.REPORT_TIMEOUT", 0.2)
    stopped = warm.zygote
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    assert await status_of(warm, "exit_with", b"5") == 5
    assert not psutil.pid_exists(stopped)


async def test_start_cancelled_while_the_zygote_is_stopped_makes_no_child(
    warm: ZygoteStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.orchestrator.processes.fork_handshake.UNDO_TIMEOUT", 0.05)
    assert warm.zygote is not None
    os.kill(warm.zygote, signal.SIGSTOP)
    with trio.move_on_after(0.05):
        await warm.start(make_start("echo"))
    os.kill(warm.zygote, signal.SIGCONT)
    assert await status_of(warm, "exit_with", b"0") == 0
    assert [child.pid for child in _children()] == [warm.zygote]


async def test_a_zygote_with_a_thread_forks_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """A fork would lack the thread and keep its locks; the next zygote fails too, and then the starter gives up."""
    with trio.fail_after(PATIENCE):
        async with open_zygote_starter([f"{child_entries.__name__}:have_a_thread"]) as warm:
            with pytest.raises(StartFailed, match="ended twice"):
                await warm.start(make_start("echo"))
    assert capfd.readouterr().err.count("AssertionError: a fork is safe only with one thread") == 2


async def test_unusable_zygote_or_full_process_table_is_a_failed_start() -> None:
    with trio.fail_after(PATIENCE):
        for name, reason in (("nowhere", "No module named 'nowhere'"), ("os:abort", "ended before it was ready")):
            with pytest.raises(StartFailed, match=reason):
                async with open_zygote_starter([name]):
                    pass
        async with open_zygote_starter([f"{child_entries.__name__}:allow_one_process"]) as warm:
            with pytest.raises(StartFailed) as failed:
                await warm.start(make_start("echo"))
    assert failed.value.errno == errno.EAGAIN


def test_a_full_process_table_is_a_failed_start_of_the_plain_one() -> None:
    command = [sys.executable, "-P", "-m", starter_root.__name__, "poor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(errno.EAGAIN), "")


@pytest.mark.parametrize("way", ["plain", "warm"])
async def test_all_processes_end_when_the_root_is_killed(way: str) -> None:
    """Including processes that cannot notice it because they are stopped."""
    command = [sys.executable, "-P", "-m", starter_root.__name__, way]
    with trio.fail_after(PATIENCE), subprocess.Popen(command, stdout=subprocess.PIPE) as root:  # noqa: ASYNC220 - quick
        assert root.stdout is not None
        pids = msgspec.json.decode(await trio.to_thread.run_sync(root.stdout.readline), type=list[int])
        assert len(pids) == 3 + (way == "warm")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        root.kill()
        with trio.fail_after(2):
            for pid in pids:
                await wait_gone(pid)


async def wait_gone(pid: int) -> None:
    """Return when a process has ended or was reaped."""
    try:
        await wait_ended(pid)
    except ProcessLookupError:
        return


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_nothing_is_left_of_starts_that_were_cancelled_or_killed(rounds: int, warm: ZygoteStarter) -> None:
    """Children are killed at random moments, and seldom the zygote."""
    dice, outcomes = random.Random(rounds), Counter[str]()

    async def start(patience: float) -> None:
        outcome = "given up"
        with trio.move_on_after(patience):
            try:
                child = await warm.start(make_start("exit_with", b"3"))
            except StartFailed:
                outcome = "failed"
            else:
                with trio.CancelScope(shield=True):
                    outcome = "done" if await child.wait() == 3 else "killed"
        outcomes[outcome] += 1

    async def kill() -> None:
        while True:
            await trio.sleep(dice.random() * 0.03)
            victim = dice.choice([*_children(), None])
            if victim is not None and (victim.pid != warm.zygote or dice.random() < 0.05):
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_reaper)
        nursery.start_soon(kill)
        for _ in range(rounds):
            async with trio.open_nursery() as starts:
                for _ in range(20):
                    starts.start_soon(start, dice.choice(PATIENCES))
        nursery.cancel_scope.cancel()
    while CHILDREN.adopted():  # an adopted child may still be ending
        CHILDREN.reap_adopted()
        await trio.lowlevel.checkpoint()
    assert {child.pid for child in _children()} <= {warm.zygote}
    assert outcomes.total() == 20 * rounds
    assert outcomes["done"]
    assert outcomes["given up"]


def _children() -> list[psutil.Process]:
    """Descendants of this process except the warm process that programs of other tests are forked from."""
    return [child for child in psutil.Process().children(recursive=True) if child.pid != warm_start.warm_pid()]
