"""Run of a session of days in a window of given size with one strategy, in a separate process.

The window is a row of the table of models, which the server reads too, so it rejects longer requests. As a module, this
file is such a process: it reads a `ContextRunOrder` from standard input and prints an `Outcome`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from benchmarks.context_outcome import EARLY, LATE, Observed, Outcome, outcome_of
from benchmarks.context_script import days_script
from benchmarks.context_session import Size, build_days, remembering_tools
from benchmarks.context_strategies import STRATEGIES, Strategy
from benchmarks.long_session import LongSession
from benchmarks.package_calls import PACKAGES
from benchmarks.replayed_tools import definitions
from benchmarks.sample_history import MODEL
from coterie.agents.layers.layer2_clearing import api_clearing
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import MODELS_FILE_VARIABLE, known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.prompts import render
from coterie.agents.tools.tool import Tool, Workspace, allow_all
from coterie.clock import Clock
from coterie.orchestrator.processes.api_server_process import open_api_server

PROGRESS = 250
"""Number of turns between two progress lines."""
_ROOT = Path(__file__).resolve().parents[1]


class ContextRunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a run."""

    strategy: str
    size: Size
    seed: int
    compares_turns: bool = False
    """True if the CPU time of early and late turns is compared."""


async def run_in_process(order: ContextRunOrder) -> Outcome:
    """Run in a separate process, which is reaped; cancellation kills it, and it never outlives this process.

    Raises `CalledProcessError` in a group.
    """
    with tempfile.TemporaryDirectory() as directory:
        models = Path(directory) / "models.toml"
        models.write_text(f'[models."{MODEL}"]\nwindow = {order.size.window}\n')
        command = [sys.executable, "-m", "benchmarks.context_run"]
        pipe, environ = subprocess.PIPE, {**os.environ, MODELS_FILE_VARIABLE: str(models)}
        run = partial(trio.run_process, command, stdin=pipe, stdout=pipe, cwd=_ROOT, env=environ)
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(run)
            assert process.stdin is not None
            assert process.stdout is not None
            async with process.stdin, process.stdout:
                await process.stdin.send_all(msgspec.json.encode(order) + b"\n")
                answer = b"".join([chunk async for chunk in process.stdout])
    return msgspec.json.decode(answer, type=Outcome)


async def run_session(order: ContextRunOrder) -> Outcome:
    """Run to the end of the session; its files are deleted."""
    session, strategy = build_days(order.size, order.seed), STRATEGIES[order.strategy]
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        script = scratch / "script.yaml"
        compared = (EARLY, LATE) if order.compares_turns else ()
        script.write_text(days_script(session, scratch / "notes.md", compared))
        clock = Clock(file=scratch / "clock")
        async with (
            open_api_server(script, "--clock", str(clock.file)) as server,
            open_model_client(LocalGateway(), base_url=server.url, api_key="benchmark") as client,
            _open_agent(session, strategy, client, clock, scratch) as (agent, notes),
        ):
            seen = Observed(agent)
            passing = _Passing(session.pauses, notes)
            agent.pipeline = attrs.evolve(
                agent.pipeline,
                tool_results=(passing, *agent.pipeline.tool_results),
                reply=(*agent.pipeline.reply, seen, _Progress(strategy.name, len(session.replies))),
            )
            await _converse(session, agent, passing, seen)
            return outcome_of(order.strategy, seen, await server.requests())


@attrs.frozen
class _Passing:
    """Advances the simulated time by the pauses of the session."""

    _pauses: Sequence[float]
    _notes: SessionNotesLayer | None

    async def wait(self, agent: Agent) -> None:
        """Apply the pause after the last recorded reply."""
        if self._notes is not None:
            # An update takes seconds, and so do the calls that run at the same time.
            await self._notes.wait_until_written()
        agent.clock.advance(self._pauses[agent.turn - 2])

    async def transform_results(self, agent: Agent, answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """Apply the duration of the recorded calls, except for those of a helper."""
        if answers[0].call["id"] in agent.conversation.open_tool_uses:
            await self.wait(agent)
        return answers


@attrs.frozen
class _Progress:
    """Reports the progress of the session."""

    _name: str
    _turns: int

    def on_reply(self, agent: Agent, _reply: Reply) -> None:
        """Print a progress line from time to time."""
        turn = agent.turn - 1
        if turn % PROGRESS == 0:
            print(f"context: {self._name}, turn {turn} of {self._turns}", file=sys.stderr, flush=True)


async def _converse(session: LongSession, agent: Agent, passing: _Passing, seen: Observed) -> None:
    limits = RunLimits(turns=len(session.replies))
    for exchange in session.exchanges:
        words = UserTextRecord(texts=[exchange.prompt])
        agent.append_message("user", [text_block(exchange.prompt)], words)
        ended = await run_loop(agent, limits)
        if ended.reason != "completed":
            seen.ended.append(f"{ended.reason} in turn {agent.turn}: {ended.error}")
            return
        await passing.wait(agent)


@asynccontextmanager
async def _open_agent(
    session: LongSession, strategy: Strategy, client: ModelClient, clock: Clock, scratch: Path
) -> AsyncIterator[tuple[Agent, SessionNotesLayer | None]]:
    model = known_models().get(MODEL)
    thresholds = Thresholds.for_window(model.window, model.max_output)
    workspace = Workspace(root=PACKAGES, scratch=scratch)
    tools = await remembering_tools(session, Workspace(root=PACKAGES, scratch=scratch))
    with TranscriptWriter.open(scratch / "transcript.jsonl", clock) as transcript:
        agent = Agent(
            identity=Identity(agent="main"),
            model=model,
            client=client,
            conversation=Conversation.begin(
                _header(strategy, thresholds, tools), tools=definitions(tools), system=[text_block(render("agent"))]
            ),
            transcript=transcript,
            tools=tools,
            workspace=workspace,
            denial=allow_all,
            meter=WindowMeter(thresholds),
            clock=clock,
            durability="never",
        )
        async with strategy.open_steps(agent) as notes:
            yield agent, notes


def _header(strategy: Strategy, thresholds: Thresholds, tools: dict[str, Tool]) -> KeyHeader:
    header, layers = KeyHeader(model=MODEL), strategy.layers
    if layers.clearing.by_api:
        header = api_clearing(header, known_models().get(MODEL), thresholds, layers.clearing, tools)
    if layers.clearing.by_cache:
        header = attrs.evolve(header, betas=(*header.betas, known_models().betas["cache_edits"]))
    return header


async def _run_until_stdin_ends(order: ContextRunOrder) -> Outcome:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_at_end_of_stdin, nursery.cancel_scope)
        outcome = await run_session(order)
        nursery.cancel_scope.cancel()
        return outcome
    raise SystemExit("standard input was closed before the run ended")


async def _stop_at_end_of_stdin(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        async for _ in stdin:
            pass
    scope.cancel()


if __name__ == "__main__":
    ordered = msgspec.json.decode(sys.stdin.buffer.readline(), type=ContextRunOrder)
    sys.stdout.buffer.write(msgspec.json.encode(trio.run(_run_until_stdin_ends, ordered)))
