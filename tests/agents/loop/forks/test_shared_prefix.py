"""First requests report their shared prefix, so that the gateway can delay other calls that would write it too."""

import json
from pathlib import Path

import trio

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.run_result import RunLimits
from coterie.orchestrator.gateway.admission import ModelGateway
from tests.agents.conversation_blocks import HEADER, text, tool_use
from tests.agents.loop.forks.fork_family import FORK
from tests.agents.scripted_agent import build_agent
from tests.conformance.reference_cache import count_tokens
from tests.embedded_server import Served, open_served

SYSTEM, CONTEXT = text_block("You are a worker. " * 200), text_block("This is the project. " * 200)
WORKERS = 5


def test_forks_share_all_but_directive_and_new_agents_their_system() -> None:
    parent = Conversation.begin(HEADER, tools=[b"{}"], system=[text("s")])
    parent.append("user", [text("context"), text("task")])
    assert parent.shared_hash == parent.prefix.hash_at(2)
    parent.sent(parent.render(max_tokens=1))
    assert parent.shared_hash is None
    parent.append("assistant", [tool_use("toolu_1")])
    left, right = parent.fork_with("started", "Left."), parent.fork_with("started", "Right.")
    assert left.shared_hash == right.shared_hash == left.prefix.hash_at(len(left) - 1)
    left.sent(left.render(max_tokens=1))
    assert left.shared_hash is None


def test_last_answered_request_can_be_resent() -> None:
    conversation = Conversation.begin(HEADER, system=[text("s")])
    conversation.append("user", [text("context"), text("task"), text("")])
    sent = conversation.render(max_tokens=1)
    assert conversation.answered().render(max_tokens=1).body == sent.body
    conversation.sent(sent)
    conversation.append("assistant", [text("Yes.")])
    again = conversation.answered()
    assert [message.role for message in again.messages] == ["user"]
    assert again.messages == conversation.messages[:1]


async def test_new_agents_of_one_type_write_prefix_once(tmp_path: Path) -> None:
    """All start at the same time; the gateway admits one first, and the others read its cache entries."""
    async with open_served(json.dumps({"default": [FORK]})) as served:
        gate = ModelGateway(served.clock)
        async with trio.open_nursery() as nursery:
            for number in range(WORKERS):
                nursery.start_soon(run_worker, served, gate, tmp_path, f"worker-{number}")
    common = count_tokens(json.loads(SYSTEM)) + count_tokens(json.loads(CONTEXT))
    reads = sorted(entry["usage"]["cache_read_input_tokens"] for entry in served.requests)
    assert reads == [0, *[common] * (WORKERS - 1)]


async def run_worker(served: Served, gate: ModelGateway, directory: Path, name: str) -> None:
    with TranscriptWriter.open(directory / f"{name}.jsonl", served.clock) as transcript:
        async with (
            gate.open_client(name) as asker,
            open_model_client(asker, base_url=served.url, api_key="k") as client,
        ):
            agent = build_agent(transcript, client, directory, name=name, system=[SYSTEM], clock=served.clock)
            agent.append_message("user", [CONTEXT, text_block(f"You are {name}.")])
            await run_loop(agent, RunLimits())
