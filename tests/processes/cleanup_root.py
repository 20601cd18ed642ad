"""Root with only a cleanup daemon, which dies in a given way: `python -m ... SESSION WAY`.

It prints the pid of its cleanup daemon, and stays alive until it is killed, unless it kills itself:

- `stays`: its parent kills it.
- `hung-up`: the pipe of the cleanup daemon is closed before the root has ended, as if the process died slowly.
- `at-once`: it is killed before its cleanup daemon has executed its first line.
- `asleep`: the same, with the cleanup daemon stopped.
- `after-farewell`: it ends normally, and is killed when its cleanup daemon has ended.
- `in-one-breath`: it stops its ready cleanup daemon, and is killed before the stop takes effect.
"""

import os
import signal
import sys
from pathlib import Path

import trio

from coterie.clock import Clock
from coterie.orchestrator.processes import cleanup_daemon
from coterie.orchestrator.processes.cleanup_supervisor import CleanupSupervisor, open_cleanup_daemon
from coterie.orchestrator.root.root import open_root
from coterie.orchestrator.session.root_lock import ROOT_RECORD, open_root_record
from coterie.process_identity import SESSION_VARIABLE
from coterie.session_directory import SessionDirectory


async def _run(session: SessionDirectory, way: str) -> None:
    mark = f"{SESSION_VARIABLE}={session.id}"
    environment = {**os.environ, SESSION_VARIABLE: session.id}
    with open_root_record(session, Clock()):
        async with open_cleanup_daemon(mark, session.directory / ROOT_RECORD, environment) as post:
            assert post.pid is not None
            if way == "asleep":
                os.kill(post.pid, signal.SIGSTOP)
                await trio.to_thread.run_sync(os.waitid, os.P_PID, post.pid, os.WSTOPPED | os.WNOWAIT)
            elif way == "hung-up":
                post._close_pipe()  # noqa: SLF001 - the kernel does it in no order that a test could ask for
            elif way == "in-one-breath":
                while Path(f"/proc/{post.pid}/comm").read_text() != f"{cleanup_daemon.TITLE}\n":  # noqa: ASYNC110, ASYNC240
                    await trio.sleep(0.005)
            os.write(sys.stdout.fileno(), f"{post.pid}\n".encode())
            if way == "in-one-breath":
                os.kill(post.pid, signal.SIGSTOP)
            if way not in ("stays", "hung-up"):
                os.kill(os.getpid(), signal.SIGKILL)
            await trio.sleep_forever()


async def _end(session: SessionDirectory, _way: str) -> None:
    leave = CleanupSupervisor.release

    async def leave_and_die(post: CleanupSupervisor) -> None:
        await leave(post)
        os.kill(os.getpid(), signal.SIGKILL)

    async with open_root(session) as root:
        os.write(sys.stdout.fileno(), f"{root.cleanup.pid}\n".encode())
        await root.supervisor.services.mail.roster.set_state("scout", "ended")
        setattr(CleanupSupervisor, "release", leave_and_die)  # noqa: B010 - at no other moment can it be struck so surely


if __name__ == "__main__":
    trio.run(_end if sys.argv[2] == "after-farewell" else _run, SessionDirectory.find(sys.argv[1]), sys.argv[2])
