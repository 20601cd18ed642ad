"""Applies process faults and clock jumps to a running scenario."""

import signal
from collections.abc import Iterable, Mapping

from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.orchestrator.processes.zygote import TITLE
from coterie.orchestrator.session.overview import END_STATES
from coterie.orchestrator.session.root_lock import find_root
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.scenarios.runner.scenario import EVERYTHING, LEAD, ROOT, ZYGOTE, ProcessFault, ProcessFaultKind
from coterie.scenarios.runner.scenario_processes import ScenarioProcess, find_processes
from coterie.session_directory import MAIN, SessionDirectory

_SIGNALS: Mapping[ProcessFaultKind, signal.Signals] = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}

TITLE_LENGTH = 15
"""Characters of a process's title that the kernel keeps."""


def apply_fault(
    fault: ProcessFault, stage: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
    """Do what *fault* says, at once; the processes that it met. Blocks for a moment."""
    if fault.deed == "jump":
        stage.clock.advance(fault.seconds)
        return []
    victims = _victims(fault.target, stage, session, events)
    return [process for process in victims if process.send_signal(_SIGNALS[fault.deed])]


def agent_pids(events: Iterable[SessionEvent]) -> dict[str, int]:
    """The process of each agent that has one, as far as it was told of."""
    found: dict[str, int] = {}
    for observed in events:
        if isinstance(event := observed.event, AgentChanged):
            if event.state in END_STATES:
                found.pop(event.name, None)
            elif event.pid is not None:
                found[event.name] = event.pid
    return found


def _victims(
    target: str, stage: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
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
    pid = agent_pids(events).get(agent)
    if pid is None:
        # It may be at work before the root has told its number; then its title names it, if that is no other's too.
        titled = [process for process in processes if process.name == f"coterie {agent}"[:TITLE_LENGTH]]
        return titled if len(titled) == 1 else []
    return [process for process in processes if process.pid == pid]
