"""Warm start for the programs of the tests: `python -P -m coterie...` is forked instead of started from cold.

A warm process has imported the command line, the root, the API server and everything that agents preload. For each
program that a test starts with `subprocess` it forks a sibling of itself, which is therefore a child of the test, with
the arguments, environment, directory and descriptors that `Popen` was given. Only the start of the interpreter and the
imports are saved: the processes, sockets, files and signals are real. A program that starts others (a client its root,
a root its zygote) has a warm process of its own.

Tests marked `cold_start`, and all tests if COTERIE_COLD_START is set, start their programs from cold.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = (
    "coterie",
    "coterie.orchestrator.root",
    "coterie.orchestrator.processes.zygote",
)
"""Modules that are forked when they are started by `python -P -m`."""
STARTS_OTHERS = ("coterie", "coterie.orchestrator.root")
COMMANDS = "coterie.orchestrator.cli.commands"

_PACKET = 1 << 18
_DESCRIPTORS = 250
_ROOM = 1 << 16
"""Bytes that the arguments of a forked program may have, and its environment, as /proc shows them."""
_PADDING = "COTERIE_TEST_PADDING"
"""Variable of the warm process that makes room for the environment of its forks, as /proc shows it."""
_START_OF_ENVIRONMENT = 47
"""Index among the fields of /proc/PID/stat that follow the name; the start and end of the arguments precede it."""


class WarmProcess:
    """Client of a warm process: sends it requests to fork, one at a time."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def start(cls) -> "WarmProcess":
        """Start a warm process as a child of this one. It dies with the thread that calls this."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno()), str(os.getpid()), " " * _ROOM]
            environment = {**os.environ, _PADDING: " " * _ROOM}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        process.returncode = 0  # so that `subprocess` leaves it to `close` to reap it
        return cls(ours, process.pid)

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Return the pid of a new child of this process. Raises `OSError`."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            self._connection.sendmsg([json.dumps(request).encode("utf-8", "surrogateescape")], rights)
            answer = self._connection.recv(64)
        if not answer.isdigit():
            raise OSError(f"the warm process did not fork: {answer.decode()}")
        return int(answer)

    def close(self) -> None:
        """End the warm process and reap it."""
        self._connection.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class _Forking:
    """The warm process in use by `subprocess` of this process, if any."""

    warm: WarmProcess | None = None
    settings: Mapping[str, str] = {}
    is_enabled = False


_original_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # noqa: SLF001 - the hook
_signature = inspect.signature(_original_execute)


def install() -> None:
    """Fork the programs that `subprocess` starts in this process from now on, while forking is enabled."""
    subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]  # noqa: SLF001 - the hook
    _Forking.settings = _interpreter_settings(os.environ)
    _Forking.is_enabled = "COTERIE_COLD_START" not in os.environ


def warm_pid() -> int | None:
    """The pid of the warm process of this process."""
    return None if _Forking.warm is None else _Forking.warm.pid


def uninstall() -> None:
    """End the warm process."""
    subprocess.Popen._execute_child = _original_execute  # type: ignore[attr-defined]  # noqa: SLF001 - the hook
    if _Forking.warm is not None:
        _Forking.warm.close()
        _Forking.warm = None


@contextlib.contextmanager
def cold_start() -> Iterator[None]:
    """Start programs with new interpreters within the block."""
    before, _Forking.is_enabled = _Forking.is_enabled, False
    try:
        yield
    finally:
        _Forking.is_enabled = before


def _execute(self: "subprocess.Popen[Any]", *arguments: Any) -> None:
    given = _signature.bind(self, *arguments).arguments
    if not (_Forking.is_enabled and _is_forkable(given)):
        _original_execute(self, *arguments)
        return
    if _Forking.warm is None:
        _Forking.warm = WarmProcess.start()
    _, _, _, module, *rest = [os.fsdecode(part) for part in given["args"]]
    environment = os.environ if given["env"] is None else given["env"]
    passed = sorted(map(int, given["pass_fds"]))
    standard = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
    request = {
        "module": module,
        "arguments": rest,
        "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        "directory": os.path.abspath(os.fsdecode(given["cwd"] or ".")),  # noqa: PTH100 - of bytes too
        "umask": given["umask"],
        "session": given["start_new_session"],
        "group": given["process_group"],
        "descriptors": [0, 1, 2, *passed],
    }
    sent = [*(number if number >= 0 else default for default, number in enumerate(standard)), *passed]
    self.pid = _Forking.warm.fork(request, sent)
    self._child_created = True  # type: ignore[attr-defined]
    self._close_pipe_fds(  # type: ignore[attr-defined]
        *(given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
    )


def _is_forkable(given: Mapping[str, Any]) -> bool:
    """True if the command is one of PROGRAMS and `Popen` got only options that a fork can have."""
    command = given["args"]
    if isinstance(command, str | bytes | os.PathLike) or len(command) < 4:
        return False
    first, *flags = [os.fsdecode(part) for part in command[:4]]
    has_warm = _Forking.warm is not None or threading.current_thread() is threading.main_thread()
    is_program = first == sys.executable and flags[:2] == ["-P", "-m"] and flags[2] in PROGRAMS
    unusual = ("shell", "preexec_fn", "uid", "gid", "gids")
    is_usual = given["close_fds"] and not any(given[name] for name in unusual if given[name] is not None)
    environment = os.environ if given["env"] is None else given["env"]
    settings = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    directory = given["cwd"]
    return (
        is_program
        and has_warm
        and is_usual
        and _interpreter_settings(settings) == _Forking.settings
        and sum(len(os.fsencode(part)) + 1 for part in command) < _ROOM
        and sum(len(name) + len(os.fsencode(value)) + 2 for name, value in settings.items()) < _ROOM
        and (directory is None or Path(os.fsdecode(directory)).is_dir())
    )


def _interpreter_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Select what an interpreter reads from *environment* when it starts, so a fork cannot follow it."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def main() -> None:
    """Import everything, then fork on request until the parent closes the socket or dies."""
    number, parent = (int(argument) for argument in sys.argv[1:3])
    linux = importlib.import_module("coterie.orchestrator.processes.linux")
    if not linux.die_with_parent(parent):
        sys.exit(1)
    _import_programs()
    with socket.socket(fileno=number) as requests:
        _serve(requests)


def _import_programs() -> None:
    for module in ("coterie.orchestrator.cli.main", "coterie.orchestrator.root.__main__", "coterie.scenarios.command"):
        importlib.import_module(module)
    for folder in (COMMANDS, "coterie.orchestrator.cli", "coterie.scenarios.api_server"):
        _import_below(folder)
    starters = importlib.import_module("coterie.orchestrator.processes.process_starters")
    importlib.import_module("coterie.orchestrator.processes.zygote").prepare(starters.AGENT_PRELOADS)
    gc.collect()
    gc.freeze()


def _import_below(name: str) -> None:
    top = importlib.import_module(name)
    for path in sorted(Path(top.__path__[0]).rglob("*.py")):
        parts = path.relative_to(top.__path__[0]).with_suffix("").parts
        if not parts[-1].startswith("__"):
            importlib.import_module(".".join((name, *parts)))


def _serve(requests: socket.socket) -> None:
    """Fork until the parent has closed the socket. In a fork it does not return."""
    from coterie.orchestrator.processes.linux import fork_sibling  # noqa: PLC0415 - not needed in the test itself

    space = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    while True:
        packet, ancillary, _, _ = requests.recvmsg(_PACKET, space, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return
        received = array.array("i")
        for _, _, data in ancillary:
            received.frombytes(data)
        try:
            pid = fork_sibling()
        except OSError as exc:
            requests.send(str(exc).encode())
        else:
            if pid == 0:
                requests.close()
                _run(json.loads(packet.decode("utf-8", "surrogateescape")), received)
            requests.send(str(pid).encode())
        for number in received:
            os.close(number)


def _run(request: Mapping[str, Any], received: Sequence[int]) -> None:
    """Become the program; never returns."""
    status = 1
    try:
        _become(request, received)
        status = _run_module(request["module"])
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the top
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as the interpreter does at its end
            atexit._run_exitfuncs()  # noqa: SLF001 - the same
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _become(request: Mapping[str, Any], received: Sequence[int]) -> None:
    if request["session"]:
        os.setsid()
    if request["group"] is not None and request["group"] >= 0:
        os.setpgid(0, request["group"])
    if request["umask"] is not None and request["umask"] >= 0:
        os.umask(request["umask"])
    os.chdir(request["directory"])
    _place_descriptors(dict(zip(request["descriptors"], received, strict=True)))
    os.environ.clear()
    os.environ.update(request["environment"])
    _restore_signals()
    _forget_environment()
    if request["module"] in STARTS_OTHERS:
        _open_own_warm_process()
    sys.argv = [request["module"], *request["arguments"]]
    command = [sys.executable, "-P", "-m", request["module"], *request["arguments"]]
    _show(command, [f"{name}={value}" for name, value in request["environment"].items()])
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        errors = "backslashreplace" if number == 2 else "surrogateescape" if number == 0 else "strict"
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        if number == 2 or (number == 1 and stream.isatty()):
            stream.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _place_descriptors(wanted: Mapping[int, int]) -> None:
    """Have each descriptor under its wanted number, and no others."""
    import fcntl  # noqa: PLC0415 - not needed in the test itself

    above = max(wanted) + 1
    moved = {target: fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for target, number in wanted.items()}
    for target, number in moved.items():
        os.dup2(number, target, inheritable=True)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a list, before any is closed
        if int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _restore_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _forget_environment() -> None:
    """Drop the values that modules have computed from the environment of the warm process."""
    time.tzset()
    tempfile.tempdir = None
    for name, module in list(sys.modules.items()):
        if name.startswith("coterie.") and not name.endswith("client_warmup"):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _open_own_warm_process() -> None:
    """Fork a warm process for the programs that this one starts."""
    from coterie.orchestrator.processes.linux import die_with_parent  # noqa: PLC0415 - not needed in the test itself

    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if pid := os.fork():
        theirs.close()
        _Forking.warm = WarmProcess(ours, pid)
        install()
        return
    if die_with_parent(parent):
        null = os.open(os.devnull, os.O_RDWR)
        requests = theirs.detach()
        _place_descriptors({0: null, 1: null, 2: null, max(requests, 3): requests})
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        _serve(socket.socket(fileno=max(requests, 3)))
    os._exit(0)


def _show(command: Sequence[str], environment: Sequence[str]) -> None:
    """Show *command* and *environment* in /proc, by which processes of a session are found."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    places = [int(field) for field in fields[_START_OF_ENVIRONMENT - 2 : _START_OF_ENVIRONMENT + 2]]
    for (start, end), texts in zip((places[:2], places[2:]), (command, environment), strict=True):
        size = end - start
        content = b"".join(os.fsencode(text) + b"\0" for text in texts)
        assert len(content) <= size, "the warm process has too little room for the environment of a program"
        ctypes.memmove(start, content.ljust(size, b"\0"), size)


def _run_module(module: str) -> int:
    """Run *module* as `python -m` does and return the exit status."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it is imported already
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        print(exc.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return 1
    return 0


if __name__ == "__main__":
    main()
