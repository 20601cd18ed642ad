"""Driver of one framework: a script for its own interpreter that takes an order in JSON and prints its resource use.

It does not import Coterie. Each framework is used as in the beginning of its documentation: an agent with a system
prompt and one tool, one task per agent in a fan-out, all in one process. The cost of a turn is measured in the tool,
which is called once per turn.
"""

import asyncio  # noqa: TID251 - the frameworks support only asyncio, and this process runs nothing else
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

LINE = '    value = "what a tool gives back is a page of a file, as a rule"\n'
RESULT_LINES = 36
"""Size of one result: about 2,500 characters, the mean of recorded sessions."""


class DriverOrder(NamedTuple):
    """Parameters of the work."""

    framework: str
    url: str
    warm_url: str | None
    """Server for one warm-up agent; None if the start is measured too."""
    model: str
    system: str
    """System prompt; on the command line, the path of a file with it."""
    turns: int
    """Model calls of each agent; the last one answers."""
    agents: int
    caches: bool
    """True if the framework's options for the prompt cache are on."""


MARKS: list[float] = []
"""CPU seconds at each call of the tool."""

RunAgents = Callable[[DriverOrder], Awaitable[None]]


def read(path: str, first: int, last: int) -> str:
    """Read lines of a file.

    Args:
        path: The file.
        first: The first line.
        last: The last line.
    """
    MARKS.append(time.process_time())
    del last
    return "".join(f"{number:>6}\t{path}{LINE}" for number in range(first, first + RESULT_LINES))


def _prompt(number: int) -> str:
    return f"Look through the files, as agent {number}."


def _name(number: int) -> str:
    return f"agent-{number:03}"


async def run_pydantic_ai(order: DriverOrder) -> None:
    """Use one agent for all runs, as in its documentation."""
    pydantic_ai = importlib.import_module("pydantic_ai")
    models = importlib.import_module("pydantic_ai.models.anthropic")
    providers = importlib.import_module("pydantic_ai.providers.anthropic")
    usage = importlib.import_module("pydantic_ai.usage")
    provider = providers.AnthropicProvider(api_key="k", base_url=order.url)
    caching = {"anthropic_cache_tool_definitions": True, "anthropic_cache_instructions": True, "anthropic_cache": True}
    agent = pydantic_ai.Agent(
        models.AnthropicModel(order.model, provider=provider), instructions=order.system, tools=[read]
    )

    async def run(number: int) -> None:
        settings = {"max_tokens": 8_000, "extra_headers": {"x-coterie-agent": _name(number)}}
        await agent.run(
            _prompt(number),
            model_settings={**settings, **(caching if order.caches else {})},
            usage_limits=usage.UsageLimits(request_limit=None),
        )

    await asyncio.gather(*(run(number) for number in range(order.agents)))


async def run_langgraph(order: DriverOrder) -> None:
    """Use a graph for each agent, because its headers differ; it is built once, before the first turn."""
    chat = importlib.import_module("langchain_anthropic")
    middleware = importlib.import_module("langchain_anthropic.middleware")
    agents = importlib.import_module("langchain.agents")

    async def run(number: int) -> None:
        model = chat.ChatAnthropic(
            model=order.model,
            max_tokens=8_000,
            api_key="k",
            base_url=order.url,
            default_headers={"x-coterie-agent": _name(number)},
        )
        steps = [middleware.AnthropicPromptCachingMiddleware()] if order.caches else []
        graph = agents.create_agent(model, [read], system_prompt=order.system, middleware=steps)
        task = {"messages": [{"role": "user", "content": _prompt(number)}]}
        await graph.ainvoke(task, {"recursion_limit": 10 * order.turns + 10})

    await asyncio.gather(*(run(number) for number in range(order.agents)))


async def run_autogen(order: DriverOrder) -> None:
    """Use an assistant for each agent; it has no option for the prompt cache."""
    agents = importlib.import_module("autogen_agentchat.agents")
    models = importlib.import_module("autogen_ext.models.anthropic")
    facts = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}
    facts |= {"structured_output": False, "multiple_system_messages": False}

    async def run(number: int) -> None:
        client = models.AnthropicChatCompletionClient(
            model=order.model,
            max_tokens=8_000,
            api_key="k",
            base_url=order.url,
            model_info=facts,
            default_headers={"x-coterie-agent": _name(number)},
        )
        agent = agents.AssistantAgent(
            f"agent_{number}",
            model_client=client,
            tools=[read],
            system_message=order.system,
            max_tool_iterations=order.turns + 1,
        )
        await agent.run(task=_prompt(number))
        await client.close()

    await asyncio.gather(*(run(number) for number in range(order.agents)))


FRAMEWORKS: dict[str, RunAgents] = {
    "pydantic-ai": run_pydantic_ai,
    "langgraph": run_langgraph,
    "autogen": run_autogen,
}


def main() -> None:
    """Do the work described by the only argument."""
    order = DriverOrder(**json.loads(sys.argv[1]))
    order = order._replace(system=Path(order.system).read_text())
    run = FRAMEWORKS[order.framework]
    if order.warm_url is not None:
        # A program pays for imports and the first call once, whatever it does later.
        asyncio.run(_run(run, order._replace(url=order.warm_url, agents=1)))
        MARKS.clear()
    began = time.perf_counter()
    asyncio.run(_run(run, order))
    used = {
        "wall": time.perf_counter() - began,
        "cpu": time.process_time(),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "marks": MARKS,
    }
    print(json.dumps(used))


async def _run(run: RunAgents, order: DriverOrder) -> None:
    await run(order)


if __name__ == "__main__":
    main()
