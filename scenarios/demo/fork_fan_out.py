"""Second part of the demo: a lead that forks five agents, with their costs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import trio
from rich.console import Console
from rich.markup import escape

from coterie.agents.events.agent_events import Finished, ToolEnded
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.orchestrator.gateway.cost_report import CostReport, build_cost_report
from coterie.orchestrator.processes.api_server_process import ApiServerHandle, open_api_server
from coterie.orchestrator.root.root import open_root
from coterie.paths import HOME_VARIABLE
from coterie.session_directory import MAIN, SessionDirectory

SCRIPT = Path(__file__).with_name("team.yaml")
MODEL = "claude-opus-5-5"
TASK = "Review the invoice code from five sides."


@attrs.frozen(kw_only=True)
class FanOutResult:
    """What came of it."""

    report: CostReport
    reports: dict[str, str]
    """What each fork said in the end."""
    billed: Decimal
    """By the server's own log, which was kept in another process."""

    @property
    def is_equal(self) -> bool:
        """Whether the ledger's sum is the server's, to the last digit."""
        return self.report.total.cost == self.billed

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {"costs": self.report.to_mapping(), "reports": self.reports, "billed_usd": format(self.billed, "f")}


async def run_fan_out(project: Path, home: Path, console: Console) -> FanOutResult:
    """Be the root of a session in *project*, and let its lead work; what happens is printed as it is recorded.

    Raises `ApiServerFailed`, `StartFailed`, and `RuntimeError` unless all is done.
    """
    with _home(home):
        session = SessionDirectory.create(project, Clock.from_environment(), task=TASK, model=MODEL)
        async with open_api_server(SCRIPT) as server, open_root(session, server=server.url) as root:
            console.print(f"[dim]{MODEL} on {server.url}; this process, {os.getpid()}, is the session's root[/]\n")
            view = _View(console)
            async with open_follower(session.directory) as follower, trio.open_nursery() as nursery:
                nursery.start_soon(view.show, follower)
                outcome = await root.run(_lead())
                nursery.cancel_scope.cancel()
            view.show_rest(follower)
            billed = await _billed(server)
        if outcome.end != "done":
            raise RuntimeError(f"the lead has not done its task: {outcome.summary}")
        return FanOutResult(report=build_cost_report(session.directory), reports=view.reports, billed=billed)


def _lead() -> AgentSpec:
    settings = {"model": MODEL, "permissions.mode": "acceptEdits", "permissions.allow": ("Bash(python3:*)",)}
    sources = {"permissions.allow": ("the demo",)}
    model = known_models().get(MODEL).id
    return AgentSpec(name=MAIN, task=TASK, model=model, settings=Settings.build(settings, sources), is_bare=True)


@contextmanager
def _home(home: Path) -> Iterator[None]:
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(home)
    try:
        yield
    finally:
        os.environ.pop(HOME_VARIABLE)
        if before is not None:
            os.environ[HOME_VARIABLE] = before


async def _billed(server: ApiServerHandle) -> Decimal:
    return sum((Decimal(entry["cost_usd"]) for entry in await server.requests()), Decimal(0))


@attrs.define(eq=False)
class _View:
    """A reader of the session, as any other would be."""

    _console: Console
    reports: dict[str, str] = attrs.field(factory=dict)

    async def show(self, follower: EventFollower) -> None:
        """Print what happens until cancelled."""
        async for observed in follower:
            self._print(observed)

    def show_rest(self, follower: EventFollower) -> None:
        """Print what was recorded since."""
        while (observed := follower.take_nowait()) is not None:
            self._print(observed)

    def _print(self, observed: SessionEvent) -> None:
        match observed.event:
            case AgentChanged() as changed:
                what = f" for {changed.what}" if changed.state == "waiting" else ""
                process = f" [dim]process {changed.pid}[/]" if changed.state == "running" else ""
                self._line(changed.name, f"is {changed.state}{what}{process}")
            case ToolEnded() as ended:
                self._line(observed.agent, f"  [cyan]{ended.name}[/] [dim]{ended.seconds:.2f} s[/]")
            case Finished() as finished if observed.agent != MAIN:
                self.reports[observed.agent] = finished.result
                self._line(observed.agent, f"[green]{escape(finished.result)}[/]")

    def _line(self, agent: str, words: str) -> None:
        self._console.print(f"[bold]{agent:<11}[/] {words}")
