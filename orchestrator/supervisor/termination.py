"""Termination of an agent process, its process group and the orphans it left."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import trio

from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.tools.workspace.working_directory import FOLDER
from coterie.files import find_drafts
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.orchestrator.processes.child_registry import CHILDREN
from coterie.orchestrator.supervisor.in_process_agents import RunningChild
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, list_child_pids, read_environment, wait_ended


def shutdown_envelope(spec: AgentSpec, request: ShutdownRequest, sender: Sender, created: float) -> Envelope:
    """Request that the incarnation of *spec* ends; another incarnation ignores it."""
    return Envelope(
        sender=sender,
        recipient=Recipient(name=spec.name, incarnation=spec.incarnation.number),
        sequence=1,
        kind=request.kind,
        body=request.to_body(),
        created=created,
    )


async def terminate(child: RunningChild, grace: float) -> int:
    """Reap *child* and return its status; it has *grace* seconds to end by itself, and as many after SIGTERM.

    Then it is killed, as `kill_child` does. Call it shielded: a process must not outlive its owner.
    """
    with trio.move_on_after(grace):
        await child.wait_ended()
    child.send_signal(signal.SIGTERM)
    with trio.move_on_after(grace):
        await child.wait_ended()
    return await kill_child(child)


async def kill_child(child: RunningChild) -> int:
    """Kill *child* with its group, reap it and return its status. Call it shielded, as `terminate`."""
    # Also if it has ended by itself: its group, which may have others, keeps its number until it is reaped.
    child.send_signal_to_group(signal.SIGKILL)
    return await child.wait()


EXEC_RECHECK_SECONDS = 0.01
"""Seconds until a process that has not executed its program yet is looked at again; the kernel tells nobody of it."""


async def kill_orphans(session: str, tag: str) -> None:
    """Kill all that the agent of this *tag* left to the root, and return when nothing of it is alive.

    What is killed may leave children of its own, so it is looked for until there is none. A command that the agent was
    just about to execute does not show whose it is before it has, so it is waited for.
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
    """Remove what the process *pid*, which was killed, was writing in the directory of the *session*.

    In that of its *agent*, too, what its shells had there for as long as they ran. Raises `OSError`.
    """
    for draft in find_drafts(pid, session):
        draft.unlink(missing_ok=True)
    for folder in agent.glob(f"{FOLDER}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _find_orphans(session: str, tag: str) -> dict[int, bool]:
    """Processes that are the agent's, and those that may be, by whether it is known."""
    wanted = {SESSION_VARIABLE: session, AGENT_VARIABLE: tag}.items()
    found: dict[int, bool] = {}
    for pid in list_child_pids():
        handed_down = read_environment(pid)
        if handed_down is not None and wanted <= handed_down.items():
            found[pid] = True
        elif CHILDREN.is_unknown(pid) and (handed_down is None or _has_no_agent(handed_down, session)):
            found[pid] = False
    return found


def _has_no_agent(handed_down: dict[str, str], session: str) -> bool:
    """Whether it has what the zygote has: it is not yet what it will be."""
    return handed_down.get(SESSION_VARIABLE) == session and AGENT_VARIABLE not in handed_down


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # With its group: a shell that is killed alone leaves the rest of its pipeline behind.
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
