"""Coterie in the comparison with other frameworks.

As a module with an order in JSON, this file is one agent in its own process: its loop with all layers, with transcript
and events on disk, as in a session. The fan-out is a whole session: root, zygote, lead, and agents.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
import trio

from benchmarks.peer_driver import MARKS, read
from benchmarks.process_monitor import ProcessMonitor, children_cpu
from coterie.agents.events.event_log import EventLog
from coterie.agents.layers.layer2_clearing import api_clearing
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import arrange, context_steps, disabled_settings
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace, allow_all, tool_definition
from coterie.clock import Clock
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario

SECONDS = 900
"""Seconds after which a fan-out is aborted."""


@attrs.frozen(kw_only=True)
class _Reading:
    path: Annotated[str, "The file."]
    first: Annotated[int, "The first line."]
    last: Annotated[int, "The last line."]


@attrs.frozen(kw_only=True)
class _Read(Tool):
    """The tool that all frameworks have."""

    name: str = "read"
    description: str = "Read lines of a file."
    input_type: type[attrs.AttrsInstance] = _Reading
    access: Access = "read"
    is_clearable: bool = True

    async def run(self, arguments: _Reading, _workspace: Workspace) -> ToolResult:
        return ToolResult(text=read(arguments.path, arguments.first, arguments.last))


async def _converse(url: str, model_name: str, system: str) -> None:
    """Run one agent from its task to its answer."""
    clock, model, tools = Clock(), known_models().get(model_name), {"read": _Read()}
    settings, thresholds = (
        LayersSettings(clearing=ClearingSettings(by_cache=False)),
        Thresholds.for_window(model.window, model.max_output),
    )
    header = api_clearing(KeyHeader(model=model_name), model, thresholds, settings.clearing, tools)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with open_model_client(LocalGateway(), base_url=url, api_key="k") as client:
            with (
                TranscriptWriter.open(directory / "transcript.jsonl", clock) as transcript,
                EventLog.open(directory / "events.jsonl", "main", clock) as events,
            ):
                agent = Agent(
                    identity=Identity(agent="agent-000"),
                    model=model,
                    client=client,
                    conversation=Conversation.begin(
                        header, tools=[tool_definition(tool) for tool in tools.values()], system=[text_block(system)]
                    ),
                    transcript=transcript,
                    tools=dict(tools),
                    workspace=Workspace(root=directory, scratch=directory),
                    denial=allow_all,
                    meter=WindowMeter(thresholds),
                    build_pipeline=lambda _agent: arrange(
                        context_steps(settings, dict(tools), directory), disabled_settings(Settings(layers=settings))
                    ),
                )
                agent.clock, agent.emit, agent.durability = clock, events.emit, "turn"
                agent.append_message("user", [text_block("Look through the files, as agent 0.")])
                ended = await run_loop(agent, RunLimits(turns=100_000))
                if ended.reason != "completed":
                    raise ValueError(f"the conversation was to be completed: {ended}")


async def _work(order: dict[str, Any], system: str) -> None:
    await _converse(order["warm_url"], order["model"], system)
    MARKS.clear()
    began = time.perf_counter()
    await _converse(order["url"], order["model"], system)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = {"wall": time.perf_counter() - began, "cpu": time.process_time(), "memory": memory, "marks": MARKS}
    print(json.dumps(used))


@attrs.frozen(kw_only=True)
class FannedOut:
    """Resources that a session with many agents used."""

    wall: float
    cpu: float
    """CPU seconds of all processes except the server."""
    memory: float
    """Peak memory of the same processes, in megabytes."""
    dollars: float
    calls: int
    prompt: int
    """Tokens of an agent's first request."""


async def fan_out(agents: int, turns: int, *, is_shared: bool, model: str) -> FannedOut:
    """Run a session whose lead starts *agents* agents at the same time, each with *turns* turns."""
    with tempfile.TemporaryDirectory() as directory:
        story = _scenario(Path(directory), agents, turns, is_shared=is_shared, model=model)
        with open_environment(story, 0, is_kept=False) as stage:
            watch, before = ProcessMonitor(stage), children_cpu()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch.run)
                played, failures = await run_scenario(story, stage)
                nursery.cancel_scope.cancel()
            failures += [failure for each in story.expectations for failure in each.check(played)]
            if failures:
                raise AssertionError(failures[0].reason)
            spent = sum_costs(played.ledger)
            return FannedOut(
                wall=watch.seconds,
                cpu=children_cpu() - before - watch.cpu("server"),
                memory=watch.most_without_server,
                dollars=float(spent.cost),
                calls=spent.requests,
                prompt=next(line.usage.total - line.usage.output for line in played.ledger if line.agent == "w-001"),
            )


def _scenario(directory: Path, agents: int, turns: int, *, is_shared: bool, model: str) -> Scenario:
    names = [f"w-{number:03}" for number in range(1, agents + 1)]
    asked = {"description": "look", "subagent_type": "looker", "run_in_background": True}
    calls = [{"Agent": {"name": name, "prompt": f"Look, as {name}.", **asked}} for name in names]
    process = "shared" if is_shared else "own"
    definition_ = f"---\nname: looker\ndescription: Looks through files.\nprocess: {process}\n---\nLook with care.\n"
    pages = {f"src/part_{number}.py": read(f"part_{number}", 1, 36) for number in range(turns - 1)}
    facts = {
        "about": f"{agents} agents at once, {process}.",
        "workspace": {"files": {**pages, ".coterie/agents/looker.md": definition_}},
        "coordinator": True,
        "model": model,
        "permission_mode": "bypassPermissions",
        "task": "Look.",
        "settings": {"agents": {"at_once": agents + 1}},
        "script": {
            "main": [{"text": "All at once.", "tools": calls}, {"text": "They are at work.", "times": "always"}],
            "default": [
                *({"text": "Next.", "tools": [{"Read": {"file_path": path}}]} for path in pages),
                {"text": "I have seen it.", "times": "always"},
            ],
        },
        "limits": {"seconds": SECONDS},
        "expect": [{"exit_code": 0}, {"strays": 0}],
    }
    path = directory / "fan-out.yaml"
    path.write_bytes(msgspec.json.encode(facts))
    return load_scenario(path)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    trio.run(_work, given, Path(given["system"]).read_text())
