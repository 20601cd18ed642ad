"""Modules whose functions run between `coterie run` and the first model request, and for the delivery of a message.

Every process except the embedded server has a profile hook (`benchmarks/trace_hook.py`). A module counts when one of
its functions runs; bodies of modules and classes, and functions called during the import of a module, do not count.

The first path ends when the first `POST /v1/messages` arrives at a proxy in front of the server. The second path is
that of a message between two agent processes. It begins when the proxy passes on the reply that calls SendMessage, and
ends when the transcript of the recipient, which is polled every millisecond, has the message. It is an approximation:
unrelated work during that time is counted too, so the count of the second path varies by some modules between runs. The
first does not.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from benchmarks import trace_hook
from benchmarks.figures import Figure
from coterie.orchestrator.processes.api_server_process import open_api_server

REQUEST = b"POST /v1/messages"
CALL = b"SendMessage"
READY = b"event: message_stop"
SENDER, RECIPIENT = "main", "mate"
BODY = "a message on its way"
SETTLED = 1.0
"""Seconds after its first reply in which the recipient becomes idle."""
WITHIN = 120.0
START = "to the first request"
MESSAGE = "message"
SCRIPT = {
    SENDER: [
        {"tools": [{"SendMessage": {"to": RECIPIENT, "message": BODY}}]},
        {"text": "Sent.", "times": "always"},
    ],
    RECIPIENT: [{"text": "I wait.", "times": "always"}],
}
TEAM = f"""
name = "two"
[[members]]
name = "{RECIPIENT}"
type = "worker"
prompt = "Wait for a message."
"""
TITLE = re.compile(r"coterie (\w+)")
"""Process title that a process of a session sets; the client has its command line."""


@attrs.frozen
class Step:
    """First time in a window that a module ran a function in one process."""

    nanoseconds: int
    process: str
    kind: str
    module: str


@attrs.define(eq=False)
class Trace:
    """One run of `coterie`, with a hook in its processes and a proxy in front of its server."""

    directory: Path
    titles: dict[int, str] = attrs.field(factory=dict)
    replied: trio.Event = attrs.field(factory=trio.Event)
    """Set when the proxy has passed on a reply other than the sender's: the first of the recipient."""
    asked: trio.Event = attrs.field(factory=trio.Event)
    sent: trio.Event = attrs.field(factory=trio.Event)

    @property
    def records(self) -> Path:
        """Directory of the hooks."""
        return self.directory / "records"

    @property
    def project(self) -> Path:
        """Working directory of the agents."""
        return self.directory / "project"

    def begin(self) -> None:
        """Create the directories and the hook."""
        for path in (self.records, self.project, self.directory / "hook"):
            path.mkdir()
        shutil.copyfile(trace_hook.__file__, self.directory / "hook" / "sitecustomize.py")
        (self.project / "team.toml").write_text(TEAM)
        (self.directory / "script.yaml").write_text(json.dumps(SCRIPT))  # JSON is YAML
        self.open_window(0)

    def open_window(self, number: int) -> None:
        """Make the hooks record every module again, under *number*; save the titles of the processes."""
        with (self.records / trace_hook.WINDOW).open("r+b" if number else "wb") as file:
            file.write(bytes([number]))
        for path in self.records.glob("[0-9]*"):
            words = Path("/proc", path.name, "cmdline")
            if words.exists():
                title = TITLE.match(words.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                self.titles[int(path.name)] = title[1] if title else "client"

    def environment(self, url: str) -> dict[str, str]:
        """Environment of the run."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "COTERIE_"))}
        return {
            **kept,
            "ANTHROPIC_API_KEY": "test-key",
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CONFIG_DIR": os.devnull,
            "COTERIE_HOME": str(self.directory / "home"),
            "PYTHONPATH": str(self.directory / "hook"),
            "XDG_RUNTIME_DIR": str(self.directory),
            trace_hook.VARIABLE: str(self.records),
        }

    def steps(self, window: int) -> list[Step]:
        """Return the records of a window, in order."""
        return sorted(self._read(window), key=lambda step: step.nanoseconds)

    def _read(self, window: int) -> Iterator[Step]:
        for path in self.records.glob("[0-9]*"):
            title = self.titles.get(int(path.name), path.name)
            for line in path.read_text().splitlines():
                moment, number, kind, module = line.split()
                if int(number) == window:
                    yield Step(int(moment), title, kind, module)

    async def forward(self, port: int, client: trio.SocketStream) -> None:
        """Forward the bytes of a connection in both directions."""
        async with client, await trio.open_tcp_stream("127.0.0.1", port) as server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_requests, client, server, nursery.cancel_scope)
            await self._pass_replies(server, client)
            nursery.cancel_scope.cancel()

    async def _pass_requests(
        self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        async for chunk in _chunks(client):
            if REQUEST in chunk and not self.asked.is_set():
                self.open_window(1)
                self.asked.set()
            await server.send_all(chunk)
        scope.cancel()

    async def _pass_replies(self, server: trio.SocketStream, client: trio.SocketStream) -> None:
        async for chunk in _chunks(server):
            if CALL in chunk and not self.sent.is_set():
                await self.replied.wait()
                await trio.sleep(SETTLED)
                self.open_window(2)
                self.sent.set()
            elif READY in chunk:
                self.replied.set()
            await client.send_all(chunk)

    async def await_message(self) -> None:
        """Close the window of the message when it is in the transcript of the recipient."""
        await self.sent.wait()
        while not self._has_arrived():  # noqa: ASYNC110 - the transcript is written by another process
            await trio.sleep(0.001)
        self.open_window(3)

    def _has_arrived(self) -> bool:
        transcripts = self.directory.glob(f"home/**/agents/{RECIPIENT}/transcript*")
        return any(BODY.encode() in path.read_bytes() for path in transcripts)


async def _chunks(stream: trio.SocketStream) -> AsyncIterator[bytes]:
    try:
        async for chunk in stream:
            yield bytes(chunk)
    except trio.BrokenResourceError:
        return


async def measure() -> list[Figure]:
    """Return the number of modules, and the start time of each in milliseconds, by process."""
    with trio.fail_after(WITHIN):
        first = await _trace("Say hello.", window=0)
        message = await _trace("Send a message.", "--team", "team.toml", window=2)
    return [*_figures(START, first), *_agents_only(message), *_figures(MESSAGE, message)]


async def _trace(task: str, *options: str, window: int) -> list[Step]:
    with tempfile.TemporaryDirectory(prefix="coterie-") as directory:
        trace = Trace(Path(directory))
        trace.begin()
        if not options:
            script = {"default": [{"text": "Hello.", "times": "always"}]}
            (trace.directory / "script.yaml").write_text(json.dumps(script))
        async with (
            open_api_server(trace.directory / "script.yaml") as server,
            _open_proxy(trace, server.port) as url,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_run, trace, url, task, options)
            if options:
                await trace.await_message()
        return trace.steps(window)


async def _run(trace: Trace, url: str, task: str, options: Sequence[str]) -> None:
    command = [sys.executable, "-P", "-m", "coterie", "run", task, "-p", "--permission-mode", "bypassPermissions"]
    done = await trio.run_process(
        [*command, *options],
        cwd=trace.project,
        env=trace.environment(url),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))


@asynccontextmanager
async def _open_proxy(trace: Trace, port: int) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, partial(trace.forward, port), 0, host="127.0.0.1")
        [listener] = await nursery.start(serve)
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def _figures(way: str, steps: Sequence[Step]) -> Iterator[Figure]:
    ran = [step for step in steps if step.kind == "run"]
    modules = {step.module for step in ran}
    imported = {step.module for step in steps} - modules
    yield Figure(name=f"{way}: modules that run", value=len(modules), unit="modules", digits=0)
    yield Figure(name=f"{way}: more that run only at import", value=len(imported), unit="modules", digits=0)
    for process in dict.fromkeys(step.process for step in ran):
        for step in (step for step in ran if step.process == process):
            passed = (step.nanoseconds - steps[0].nanoseconds) / 1e6
            yield Figure(name=f"{way}: {process}: {step.module}", value=passed, unit="ms", digits=0)


def _agents_only(steps: Sequence[Step]) -> Iterator[Figure]:
    """Return the counts of a message without the client and the root, which only watch and account."""
    modules = {step.module for step in steps if step.kind == "run" and step.process in (SENDER, RECIPIENT)}
    of_mail = [module for module in modules if module.startswith("coterie.mailbox.")]
    yield Figure(name=f"{MESSAGE}: modules that run in the two agents", value=len(modules), unit="modules", digits=0)
    yield Figure(name=f"{MESSAGE}: of these in mailbox/", value=len(of_mail), unit="modules", digits=0)


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return the counts, then the modules of each process in order of their first execution."""
    before = ""
    for figure in figures:
        way, *process, name = figure.name.split(": ")
        if not process:
            yield f"  {way}: {figure.value:.0f} {name}"
            continue
        if f"{way} {process}" != before:
            before = f"{way} {process}"
            count = sum(other.name.startswith(f"{way}: {process[0]}: ") for other in figures)
            yield f"    {process[0]}: {count} modules"
        yield f"    {figure.value:>8,.0f} ms  {name}"
