"""Tests of sandbox isolation with real commands, files and sockets, and of the reasons why none is available."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import psutil
import pytest
import trio

import coterie
from coterie.agents.sandbox import backends, launch
from coterie.agents.sandbox.backends import SandboxBackend, available_backends, unavailable_reason
from coterie.agents.tools.shell.bash import BashOutput
from coterie.agents.tools.workspace.background_jobs import open_jobs
from coterie.process_identity import wait_ended
from tests.agents.sandbox.local_listeners import CALLER, open_listeners
from tests.agents.sandbox.sandboxed_workspace import PYTHON, SandboxedWorkspace, needs
from tests.agents.tools.tool_calls import bash, call

pytestmark = pytest.mark.slow

_NUMBERS = itertools.count(1)


@pytest.fixture(params=["bubblewrap", "landlock"])
def way(request: pytest.FixtureRequest) -> SandboxBackend:
    wanted: SandboxBackend = request.param
    needs(wanted)
    return wanted


@pytest.fixture
def place(tmp_path: Path, way: SandboxBackend) -> SandboxedWorkspace:
    return SandboxedWorkspace.make(tmp_path, way)


async def test_command_writes_only_workspace_and_temporary_directory(
    place: SandboxedWorkspace, way: SandboxBackend
) -> None:
    result = await place.bash("mkdir -p a/b && echo one > a/b/c && mv a/b/c d && echo two >> d && rm -r a && cat d")
    assert (result.text, result.is_error) == ("one\ntwo", False)
    assert (await place.bash('echo later > "$TMPDIR/kept" && cat "$TMPDIR/kept"')).text == "later"
    assert (await place.bash('cat "$TMPDIR/kept"; f=$(mktemp) && echo x > "$f" && cat "$f"')).text == "later\nx"
    outside = Path.home() / f".coterie-test-{os.getpid()}"
    for command in (
        f"echo x > {outside}",
        f"mkdir {outside}",
        f"touch {outside}",
        f"ln -s / {outside}",
        "echo x > /etc/coterie-test",
    ):
        assert (await place.bash(command)).is_error, command
    assert not outside.exists()
    outside = place.directory / "outside"
    for command in (f"echo x > {outside}", f"rm {outside}", f"mv {outside} here", f"truncate -s 0 {outside}"):
        await place.bash(command)
    assert outside.read_text() == "as it was"


async def test_only_failed_command_mentions_sandbox_and_final_directory_is_kept(place: SandboxedWorkspace) -> None:
    lines = (await place.bash("exit 3")).text.splitlines()
    assert "sandbox" in lines[-2]
    assert "no network" in lines[-2]
    assert lines[-1] == "[exit code 3]"
    assert "sandbox" not in (await place.bash("mkdir -p sub/deep; cd sub/deep")).text
    assert (await place.bash("pwd")).text == str(place.workspace.root / "sub/deep")
    assert list((place.directory / "own/temporary").glob(".shell-*")) == []


async def test_sockets_are_unreachable(place: SandboxedWorkspace) -> None:
    with open_listeners(place.directory / "hidden") as listeners:
        said = await place.python(CALLER, *listeners.addresses())
        # Sending a datagram succeeds without a receiver.
        assert [line.split()[:2] for line in said.splitlines() if "udp" not in line] == [
            ["tcp", "refused"],
            ["unix", "refused"],
            ["abstract", "refused"],
        ]
        assert listeners.reached() == set()


async def test_sockets_are_reachable_without_sandbox(tmp_path: Path) -> None:
    """Shows that the test above is meaningful."""
    place = SandboxedWorkspace.make(tmp_path, None)
    with open_listeners(place.directory / "hidden") as listeners:
        said = await place.python(CALLER, *listeners.addresses())
        assert (said.count("called"), listeners.reached()) == (4, {"tcp", "udp", "unix", "abstract"})


async def test_allowed_network_is_reachable_but_hidden_socket_is_not(tmp_path: Path, way: SandboxBackend) -> None:
    place = SandboxedWorkspace.make(tmp_path, way, network=True)
    with open_listeners(place.directory / "hidden") as listeners:
        await place.python(CALLER, *listeners.addresses())
        heard = listeners.reached()
    assert {"tcp", "udp"} <= heard
    assert "unix" not in heard


async def test_hidden_path_is_unreadable_but_readable_path_inside_is_not(place: SandboxedWorkspace) -> None:
    hidden = place.directory / "hidden"
    readings = f"cat {hidden}/key; cat {hidden}/shown/result"
    result = await place.bash(f"{readings}; echo x > {hidden}/new; echo x > {hidden}/shown/new")
    assert "a secret" not in result.text
    assert "a result" in result.text
    assert (await place.bash(f"echo written > {hidden}/open/it && cat {hidden}/open/it")).text == "written"
    assert sorted(path.name for path in hidden.rglob("*")) == ["it", "key", "open", "result", "shown"]


async def test_hidden_path_inside_workspace_is_unreadable(tmp_path: Path) -> None:
    """The workspace may be the home directory, which contains hidden paths."""
    needs("bubblewrap")
    keys = tmp_path / "project/.ssh"
    place = SandboxedWorkspace.make(tmp_path, "bubblewrap", hidden=(keys,), protected=(keys,))
    keys.mkdir()
    (keys / "id").write_text("a secret")
    result = await place.bash(f"cat {keys}/id; ls {keys}; echo x > {keys}/id; echo y > here; cat here")
    assert "a secret" not in result.text
    assert result.text.endswith("y")
    assert (keys / "id").read_text() == "a secret"


async def test_deepest_rule_decides(tmp_path: Path, way: SandboxBackend) -> None:
    """A workspace may be inside a hidden directory, and a file may be hidden alone."""
    place = SandboxedWorkspace.make(tmp_path, way, hidden=(tmp_path,))
    result = await place.bash(f"echo x > here && cat here; cat {tmp_path}/outside")
    assert result.text.startswith("x\n")
    assert "as it was" not in result.text
    only_file = SandboxedWorkspace.make(tmp_path, way, hidden=(tmp_path / "outside",))
    assert "as it was" not in (await only_file.bash(f"cat {tmp_path}/outside")).text


async def test_path_opened_by_user_is_writable(tmp_path: Path, way: SandboxBackend) -> None:
    (tmp_path / "cache").mkdir()
    place = SandboxedWorkspace.make(tmp_path, way, opened=(tmp_path / "cache", tmp_path / "not-there"))
    assert (await place.bash(f"echo x > {tmp_path}/cache/it")).is_error is False
    assert (tmp_path / "cache/it").read_text() == "x\n"


async def test_command_has_no_capabilities_and_cannot_affect_processes(
    place: SandboxedWorkspace, way: SandboxBackend
) -> None:
    assert (await place.bash("grep CapEff /proc/self/status")).text.split() == ["CapEff:", "0" * 16]
    assert (await place.bash(f"cat /proc/{os.getpid()}/environ")).is_error
    if way == "bubblewrap" or backends.landlock_version() >= 6:
        result = await place.bash(f"kill -0 {os.getpid()}")
        assert result.is_error


@pytest.mark.parametrize(
    "trick", ["ln -sf {secret} {end}", "rm -f {end}; mkfifo {end}", "mv {folder} {folder}x; ln -s {hidden} {folder}"]
)
async def test_forged_directory_report_makes_agent_read_nothing(place: SandboxedWorkspace, trick: str) -> None:
    """The agent, which is not sandboxed, reads the directory report of the shell."""
    hidden = place.directory / "hidden"
    (hidden / "end").write_text("a secret")
    own = place.directory / "own/temporary"
    words = {"secret": hidden / "key", "hidden": hidden, "folder": '"$f"', "end": '"$f"/end'}
    result = await place.bash(f"trap - EXIT; f=$(echo {own}/.shell-*); {trick.format(**words)}")
    assert "a secret" not in result.text
    assert place.workspace.shell.directory == place.workspace.root


async def test_background_jobs_are_sandboxed(place: SandboxedWorkspace) -> None:
    outside = place.directory / "outside"
    async with open_jobs(place.directory / "own/jobs", grace=0.1) as jobs:
        workspace = attrs.evolve(place.workspace, jobs=jobs)
        command = f"echo x > {outside}; echo y > here; echo done; sleep 100"
        assert "bash_1" in (await bash(workspace, command, run_in_background=True)).text
        with trio.fail_after(20):
            while "done" not in (await call(BashOutput(), workspace, bash_id="bash_1")).text:  # noqa: ASYNC110 - as a model
                await trio.sleep(0.02)
    assert outside.read_text() == "as it was"
    assert (place.workspace.root / "here").read_text() == "y\n"


async def test_terminated_command_may_clean_up(place: SandboxedWorkspace) -> None:
    command = "trap 'echo tidied > it; exit' TERM; echo ready; sleep 100 & wait"
    result = await place.bash(command, timeout=1.0, grace=10.0)
    assert "timed out" in result.text
    assert (place.workspace.root / "it").read_text() == "tidied\n"


async def test_command_ignoring_sigterm_is_killed(place: SandboxedWorkspace) -> None:
    length = _length()
    result = await place.bash(f"trap '' TERM; sleep {length} & sleep {length}", timeout=1.0, grace=0.2)
    assert "timed out" in result.text
    assert not _running(length)


async def test_process_leaving_group_stays_in_bubblewrap(tmp_path: Path) -> None:
    needs("bubblewrap")
    place, length = SandboxedWorkspace.make(tmp_path, "bubblewrap"), _length()
    await place.bash(f"trap '' TERM; setsid sleep {length} & sleep {length}", timeout=1.0, grace=0.2)
    await _end_of_all(length)


def _length() -> str:
    """Return a duration that no other process uses."""
    return f"{os.getpid()}.{next(_NUMBERS)}"


async def _end_of_all(length: str) -> None:
    """Wait by polling, because the process is not a child."""
    with trio.fail_after(20):
        while _running(length):  # noqa: ASYNC110 - see above
            await trio.sleep(0.01)


def _running(argument: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", argument]]


async def test_background_process_ends_with_command(tmp_path: Path) -> None:
    needs("bubblewrap")
    place, length = SandboxedWorkspace.make(tmp_path, "bubblewrap"), _length()
    await place.bash(f"setsid sleep {length} > /dev/null 2>&1 &")
    await _end_of_all(length)


async def test_commands_end_with_killed_agent(tmp_path: Path) -> None:
    needs("bubblewrap")
    place, length = SandboxedWorkspace.make(tmp_path, "bubblewrap"), _length()
    sandbox = place.workspace.sandbox
    assert sandbox is not None
    command = sandbox.command(["/bin/bash", "-c", f"exec sleep {length}"], place.workspace.root)
    program = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    async with trio.open_nursery() as nursery:
        agent = await nursery.start(_start_agent, program, command)
        with trio.fail_after(20):
            while not _running(length):  # noqa: ASYNC110 - the process is not a child of this one
                await trio.sleep(0.01)
        os.kill(agent, signal.SIGKILL)
        await _end_of_all(length)


async def _start_agent(program: str, command: list[str], *, task_status: trio.TaskStatus[int]) -> None:
    process = subprocess.Popen([PYTHON, "-I", "-c", program, *command], stdout=subprocess.DEVNULL)  # noqa: ASYNC220 - inline, as the tool does
    task_status.started(process.pid)
    await wait_ended(process.pid)
    process.wait()


async def test_landlock_denies_other_socket_types(tmp_path: Path) -> None:
    needs("landlock")
    place = SandboxedWorkspace.make(tmp_path, "landlock", network=True)
    program = """
import ctypes, socket
for family, type_ in ((socket.AF_UNIX, socket.SOCK_DGRAM), (40, socket.SOCK_STREAM), (17, socket.SOCK_RAW)):
    try:
        socket.socket(family, type_)
        print("made")
    except OSError:
        print("refused")
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    print("made")
except OSError:
    print("refused")
socket.socketpair()
libc = ctypes.CDLL(None, use_errno=True)
print("refused" if libc.syscall(425, 1, bytes(200)) < 0 and ctypes.get_errno() == 13 else "made")
"""
    assert (await place.python(program)).split() == ["refused"] * 5


def test_landlock_reports_what_it_cannot_hide(tmp_path: Path) -> None:
    sandbox = SandboxedWorkspace.make(tmp_path, "landlock").workspace.sandbox
    assert sandbox is not None
    assert sandbox.problem() is None
    (tmp_path / "project/.ssh").mkdir()
    wider = attrs.evolve(sandbox, hidden=(tmp_path / "project/.ssh",))
    assert f"{tmp_path}/project/.ssh, because it is inside {tmp_path}/project" in (wider.problem() or "")
    assert attrs.evolve(wider, way="bubblewrap").problem() is None


ASK = "from coterie.agents.sandbox.backends import unavailable_reason as obstacle; print(obstacle({way!r}))"


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = unavailable_reason("bubblewrap")
    assert reason is not None
    assert reason.startswith("the program bwrap is not installed; install the package bubblewrap")
    if unavailable_reason("landlock") is None:
        assert reason.endswith('or set sandbox = "landlock", which this kernel supports')
    assert set(available_backends()) == {"bubblewrap", "landlock"}


def test_kernel_without_namespaces_is_reported() -> None:
    """Landlock denies mounting, which Bubblewrap needs."""
    needs("landlock")
    needs("bubblewrap")
    said = _output_of(backends.landlock_command(_python("bubblewrap"), {Path("/"): "write"}, network=False))
    assert said.startswith("bwrap: ")
    assert "unprivileged user namespaces must be allowed" in said


def test_kernel_without_landlock_is_reported() -> None:
    needs("bubblewrap")
    with tempfile.TemporaryFile() as filter_:
        # Load the system call number; fail with ENOSYS for Landlock, allow all others.
        fail, allow = (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7FFF0000)
        code = ((0x20, 0, 0, 0), (0x15, 0, 1, launch.CREATE_RULESET), fail, allow)
        filter_.write(b"".join(_instruction(*line) for line in code))
        filter_.seek(0)
        number = filter_.fileno()
        options = ["--dev-bind", "/", "/", "--seccomp", str(number)]
        said = _output_of([backends.find_bubblewrap() or "", *options, *_python("landlock")], number)
    assert said == (
        "this kernel has no Landlock; version 3 (Linux 6.2) is required; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _instruction(code: int, then: int, other: int, value: int) -> bytes:
    return code.to_bytes(2, "little") + bytes((then, other)) + value.to_bytes(4, "little")


def _python(way: str) -> list[str]:
    return [sys.executable, "-P", "-c", ASK.format(way=way)]


def _output_of(command: list[str], *descriptors: int) -> str:
    path = str(Path(coterie.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=descriptors, env=environment)
    return done.stdout.strip()
