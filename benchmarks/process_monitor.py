"""Monitor of the processes of a session from outside: number, memory, and CPU time by part."""

import resource
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from coterie.orchestrator.processes.zygote import TITLE
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.scenarios.runner.scenario_processes import ScenarioProcess, find_processes

OFTEN = 0.05
"""Seconds between two samples of the processes."""
SELDOM = 10
"""Number of samples between two samples of memory, which cost more."""
_TICK = 100.0
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat, counted from the state, which follows the name."""


@attrs.define(eq=False)
class ProcessMonitor:
    """Samples the processes of a session while they run."""

    stage: ScenarioEnvironment
    most_workers: int = 0
    most_memory: float = 0.0
    """Megabytes, with shared memory counted once."""
    most_without_server: float = 0.0
    """The same without the API server."""
    _first: float | None = None
    _last: float = 0.0
    _cpu: dict[tuple[int, int], tuple[str, float]] = attrs.field(factory=dict)

    async def run(self) -> None:
        """Sample until cancelled."""
        looks = 0
        while True:
            await trio.to_thread.run_sync(self._sample, looks % SELDOM == 0)
            looks += 1
            await trio.sleep(OFTEN)

    @property
    def seconds(self) -> float:
        """Seconds from the first process of a command to the end of the root, as sampled."""
        return 0.0 if self._first is None else self._last - self._first

    def cpu(self, who: str) -> float:
        """CPU seconds of all processes of that part, as sampled."""
        used: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._cpu.values():
            used[name] += seconds
        return used[who]

    def _sample(self, at_memory: bool) -> None:
        processes = find_processes(self.stage.home)
        for process in processes:
            with suppress(OSError):
                self._cpu[process.pid, process.began] = (_part(process), _cpu_of(process.pid))
        parts = {_part(process) for process in processes}
        if parts - {"server"} and self._first is None:
            self._first = time.perf_counter()
        if "root" in parts:
            self._last = time.perf_counter()
        self.most_workers = max(self.most_workers, sum(_part(process) == "workers" for process in processes))
        if at_memory:
            memory = {process: _memory_of(process.pid) for process in processes}
            ours = sum(size for process, size in memory.items() if _part(process) != "server")
            self.most_memory = max(self.most_memory, sum(memory.values()))
            self.most_without_server = max(self.most_without_server, ours)


def _part(process: ScenarioProcess) -> str:
    """Return the part of a session that a process belongs to, by its title."""
    name = process.name
    if name == TITLE[:15]:
        return "zygote"
    if name.startswith("coterie w-"):
        return "workers"
    if name == "coterie main":
        return "lead"
    if name.startswith(("coterie root", "coterie cleanup")):
        return "root"
    command = Path(f"/proc/{process.pid}/cmdline")
    with suppress(OSError):
        return "server" if b"serve" in command.read_bytes() else "command"
    return "command"


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICK


def _memory_of(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children_cpu() -> float:
    """CPU seconds of all ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
