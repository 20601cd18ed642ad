"""What goes wrong, done to real processes and to the clock."""

import signal
from collections.abc import Iterable, Mapping

from coterie.agents.events import AgentChanged
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.overview import ENDS
from coterie.orchestrator.root_record import find_root
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.starting.zygote import TITLE
from coterie.scenarios.runner.processes import Process, find_processes, send
from coterie.scenarios.runner.stage import Stage
from coterie.scenarios.runner.story import EVERYTHING, LEAD, ROOT, ZYGOTE, Fault, FaultDeed

_SIGNALS: Mapping[FaultDeed, signal.Signals] = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}

TITLE_LENGTH = 15
"""Characters of a process's title that the kernel keeps."""


def strike(fault: Fault, stage: Stage, session: Session, events: Iterable[Observed]) -> list[Process]:
    """Do what *fault* says, at once; the processes that it met. Blocks for a moment."""
    if fault.deed == "jump":
        stage.clock.advance(fault.seconds)
        return []
    victims = _victims(fault.target, stage, session, events)
    return [process for process in victims if send(process, _SIGNALS[fault.deed])]


def pids(events: Iterable[Observed]) -> dict[str, int]:
    """The process of each agent that has one, as far as it was told of."""
    found: dict[str, int] = {}
    for observed in events:
        if isinstance(event := observed.event, AgentChanged):
            if event.state in ENDS:
                found.pop(event.name, None)
            elif event.pid is not None:
                found[event.name] = event.pid
    return found


def _victims(target: str, stage: Stage, session: Session, events: Iterable[Observed]) -> list[Process]:
    processes = find_processes(stage.home)
    root = find_root(session)
    if target == EVERYTHING:
        # The root first, or it would begin to mend what is struck.
        return sorted(processes, key=lambda process: root is None or process.pid != root.pid)
    if target == ROOT:
        return [process for process in processes if root is not None and process.pid == root.pid]
    if target == ZYGOTE:
        return [process for process in processes if process.name == TITLE[:TITLE_LENGTH]]
    agent = MAIN if target == LEAD else target
    pid = pids(events).get(agent)
    if pid is None:
        # It may be at work before the root has told its number; then its title names it, if that is no other's too.
        titled = [process for process in processes if process.name == f"coterie {agent}"[:TITLE_LENGTH]]
        return titled if len(titled) == 1 else []
    return [process for process in processes if process.pid == pid]
