"""What an agent leaves when it dies: shells and what these have started, found by what they inherited, and files."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import trio

from coterie.agents.pidfd import wait_ended
from coterie.agents.tools.working_directory import FOLDER
from coterie.files import drafts_of
from coterie.orchestrator.starting import OURS

SESSION_VARIABLE = "COTERIE_SESSION"
"""The session's id, in the environment of every process that belongs to it."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Which start of which agent a process belongs to."""


def agent_tag(name: str, incarnation: int) -> str:
    """What `COTERIE_AGENT` says."""
    return f"{name}#{incarnation}"


_VARIABLES_END = 47
"""In /proc/PID/stat, counted from behind the state: the address at which the variables end."""
UNBORN = 0.01
"""Seconds until a process that has not executed its program yet is looked at again; the kernel tells nobody of it."""


async def end_remains(session: str, tag: str) -> None:
    """Kill all that the agent of this *tag* left to the root, and return when nothing of it is alive.

    What is killed may leave children of its own, so it is looked for until there is none. A command that the agent was
    just about to execute does not show whose it is before it has, so it is waited for.
    """
    while remains := _remains(session, tag):
        ended = [pid for pid, is_known in remains.items() if is_known]
        for pid in ended:
            _kill(pid)
        for pid in ended:
            with contextlib.suppress(ProcessLookupError):  # reaped in the meantime
                await wait_ended(pid)
        OURS.reap_adopted()
        if not ended:
            await trio.sleep(UNBORN)


def remove_unfinished_sync(session: Path, agent: Path, pid: int) -> None:
    """Remove what the process *pid*, which was killed, was writing in the directory of the *session*.

    In that of its *agent*, too, what its shells had there for as long as they ran. Raises `OSError`.
    """
    for draft in drafts_of(pid, session):
        draft.unlink(missing_ok=True)
    for folder in agent.glob(f"{FOLDER}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _remains(session: str, tag: str) -> dict[int, bool]:
    """Processes that are the agent's, and those that may be, by whether it is known."""
    wanted = {f"{SESSION_VARIABLE}={session}".encode(), f"{AGENT_VARIABLE}={tag}".encode()}
    found: dict[int, bool] = {}
    for pid in _children():
        handed_down = handed_down_to(pid)
        if handed_down is not None and wanted <= handed_down:
            found[pid] = True
        elif OURS.is_unknown(pid) and (handed_down is None or _is_of_no_agent(handed_down, session)):
            found[pid] = False
    return found


def _is_of_no_agent(handed_down: set[bytes], session: str) -> bool:
    """Whether it has what the zygote has: it is not yet what it will be."""
    is_ours = f"{SESSION_VARIABLE}={session}".encode() in handed_down
    return is_ours and not any(each.startswith(f"{AGENT_VARIABLE}=".encode()) for each in handed_down)


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # With its group: a shell that is killed alone leaves the rest of its pipeline behind.
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def handed_down_to(pid: int) -> set[bytes] | None:
    """The variables that *pid* was started with; None while it is about to execute its program, and shows none.

    Nothing of one that has ended, or is another user's by now.
    """
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
        if not content and _is_in_exec(pid):
            return None
        # If there was nothing, it may have been executed in between.
        content = content or Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return set(filter(None, content.split(b"\0")))


def _is_in_exec(pid: int) -> bool:
    """Whether the kernel has taken the old program from *pid*, and not put the new one's variables in place."""
    state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return state not in (b"Z", b"X") and fields[_VARIABLES_END] == b"0"
