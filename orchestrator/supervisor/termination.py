"""Termination of an agent's process, its process group and its orphans."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import trio

from coterie.agents.tools.workspace.working_directory import FOLDER
from coterie.files import find_drafts
from coterie.orchestrator.processes.child_process import CHILDREN
from coterie.orchestrator.supervisor.in_process_agents import RunningChild
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, list_child_pids, read_environment, wait_ended


async def terminate(child: RunningChild, grace: float) -> int:
    """Wait up to *grace* seconds for the end of *child*, send SIGTERM, wait again, kill it, and return its exit status.

    Call it shielded from cancellation, because a process must not outlive its owner.
    """
    with trio.move_on_after(grace):
        await child.wait_ended()
    child.send_signal(signal.SIGTERM)
    with trio.move_on_after(grace):
        await child.wait_ended()
    return await kill_child(child)


async def kill_child(child: RunningChild) -> int:
    """Kill *child* with its process group, reap it and return its exit status. Call it shielded from cancellation."""
    # Also if the child has ended: its group may have other members, and keeps its id until the child is reaped.
    child.send_signal_to_group(signal.SIGKILL)
    return await child.wait()


EXEC_RECHECK_SECONDS = 0.01
"""Seconds until a process that has forked but not executed its program is checked again; no event reports an exec."""


async def kill_orphans(session: str, tag: str) -> None:
    """Kill orphans of an agent: adopted processes with *session* and *tag* in their environment. Wait for their end.

    A killed process may leave orphans, so the search is repeated until it finds none. A new process has the agent's tag
    (name and process number) in its environment only after its exec, so it is checked again then.
    """
    while remains := _find_orphans(session, tag):
        ended = [pid for pid, is_known in remains.items() if is_known]
        for pid in ended:
            _kill(pid)
        for pid in ended:
            with contextlib.suppress(ProcessLookupError):  # reaped in the meantime
                await wait_ended(pid)
        CHILDREN.reap_adopted()
        if not ended:
            await trio.sleep(EXEC_RECHECK_SECONDS)


def remove_drafts_sync(session: Path, agent: Path, pid: int) -> None:
    """Remove the unfinished files that the killed process *pid* left in the directory of the *session*.

    In the directory of its *agent*, the temporary files of its shells are removed too. Raises `OSError`.
    """
    for draft in find_drafts(pid, session):
        draft.unlink(missing_ok=True)
    for folder in agent.glob(f"{FOLDER}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _find_orphans(session: str, tag: str) -> dict[int, bool]:
    """Return child pids: True if *session* and *tag* are in the environment, False if an exec may still add them."""
    markers = {SESSION_VARIABLE: session, AGENT_VARIABLE: tag}.items()
    found: dict[int, bool] = {}
    for pid in list_child_pids():
        environment = read_environment(pid)
        if environment is not None and markers <= environment.items():
            found[pid] = True
        elif pid not in CHILDREN.owned and (environment is None or _has_no_agent(environment, session)):
            found[pid] = False
    return found


def _has_no_agent(environment: dict[str, str], session: str) -> bool:
    """Return True if *environment* has the session but no agent, as in a process forked by an agent until its exec."""
    return environment.get(SESSION_VARIABLE) == session and AGENT_VARIABLE not in environment


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # With its group, because a shell that is killed alone leaves the rest of its pipeline running.
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
