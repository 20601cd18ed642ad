"""Memory recall over real HTTP, in real stores, while the agent runs."""

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from coterie.agents.events.layer_events import Recalled
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import NOTHING, AddedBlocks
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import RecallRecord, UserTextRecord
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.query_log import read_queries
from coterie.memory.store.memory_store import MemoryStore
from tests.agents.scripted_agent import NotingTool, ObservedAgent, SpentGateway, open_agent, watch

SETTINGS = RecallSettings()
QUERY = "which port has the staging server"


def answer(*names: str) -> dict[str, Any]:
    return {"purpose": "recall", "text": json.dumps({"selected_memories": names})}


def turn(text: str = "done") -> dict[str, Any]:
    return {"text": text, "times": "always"}


def write(directory: Path, name: str, text: str, description: str = "a note") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {path.stem}\ndescription: {description}\ntype: project\n---\n{text}\n")
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    directory = tmp_path / "memory"
    write(directory, "ports.md", "The staging server listens on port 8417.", "ports of servers")
    write(directory, "tests.md", "Tests run against a real database.", "how we test")
    return directory


@attrs.frozen(kw_only=True)
class Work(ObservedAgent):
    """An agent with recall, its events and the server."""

    recall: MemoryRecall

    async def ask(self, query: str) -> AddedBlocks:
        """Search for *query*, wait, and return the found blocks."""
        self.recall.begin(query)
        await self.recall.wait_until_idle()
        return self.recall.take_found()


@asynccontextmanager
async def open_work(
    tmp_path: Path,
    *script: dict[str, Any],
    stores: Iterable[str] = ("memory",),
    by: Literal["model", "local"] = "model",
    settings: RecallSettings = SETTINGS,
    gate: LocalGateway | None = None,
    **options: Any,
) -> AsyncIterator[Work]:
    directory = tmp_path / "agent"
    directory.mkdir(exist_ok=True)
    tool = NotingTool(name="Note")
    opened = [MemoryStore.at(tmp_path / name) for name in stores]
    text = json.dumps({"default": list(script) or [turn()]})
    async with open_agent(text, directory, tool, gate=gate, **options) as (agent, served):
        recall = MemoryRecall(agent, opened, settings, by)
        agent.pipeline = attrs.evolve(agent.pipeline, new_message=(*agent.pipeline.new_message, recall))
        async with recall.open():
            yield Work(agent=agent, recall=recall, events=watch(agent), served=served)


def text_of(added: AddedBlocks) -> str:
    (block,) = added.blocks
    text: str = json.loads(block)["text"]
    return text


async def test_model_chooses_from_stored_memories(tmp_path: Path, memory: Path) -> None:
    async with open_work(tmp_path, turn(), answer("ports.md")) as work:
        added = await work.ask("where does staging listen?")
        text = text_of(added)
        assert text.startswith("<recalled-memories>")
        assert f'<memory path="{memory}/ports.md" saved="today">' in text
        assert "port 8417" in text
        (event,) = work.of_type(Recalled)
        assert (event.by, event.candidates, event.chosen) == ("model", 2, [str(memory / "ports.md")])
        assert event.left_out == {str(memory / "tests.md"): "others fit better"}
        assert Decimal(event.cost_usd) > 0
        (record,) = added.records
        assert isinstance(record, RecallRecord)
        assert (record.paths, record.bytes) == ([str(memory / "ports.md")], event.bytes)
        assert not work.failures
        assert work.recall.take_found() is NOTHING
        assert read_queries(memory) == ["where does staging listen?"]


async def test_recall_request_is_small_and_complete(tmp_path: Path, memory: Path) -> None:
    async with open_work(tmp_path, {"tools": [{"Note": {"text": "x"}}]}, turn(), answer("tests.md")) as work:
        await work.run()
        before = work.agent.conversation.prefix_bytes()
        await work.ask("how do we test?")
        assert work.agent.conversation.prefix_bytes() == before
        [entry] = work.requests("recall")
        body = json.loads(work.served.received[-1].body)
    assert (body["model"], body["max_tokens"], entry["turn"]) == ("claude-sonnet-5-5", 256, 1)
    assert body["output_config"]["format"]["schema"]["required"] == ["selected_memories"]
    assert body["thinking"] == {"type": "disabled"}
    assert not body.get("tools")
    (system,) = body["system"]
    lines = [line.partition(" (")[0] for line in system["text"].splitlines() if line.startswith("- [")]
    assert sorted(lines) == ["- [project] ports.md", "- [project] tests.md"]
    (said,) = body["messages"][0]["content"]
    assert "how do we test?" in said["text"]
    assert said["text"].endswith("just used: Note")


def recall_reply(text: str, **more: Any) -> dict[str, Any]:
    return {"purpose": "recall", "text": text, **more}


@pytest.mark.parametrize(
    ("replies", "options", "reason"),
    [
        ([recall_reply("ports.md, I think")], {}, "the local ranker chooses instead"),
        ([recall_reply('{"selected_memories": "ports.md"}')], {}, "the local ranker chooses instead"),
        ([recall_reply("-", fault={"kind": "error", "count": "always"})], {}, "the local ranker chooses instead"),
        ([], {"gate": SpentGateway(refused="recall")}, "the local ranker chooses instead"),
        ([], {"settings": attrs.evolve(SETTINGS, model="sonett")}, "sonnet"),
    ],
    ids=["prose", "no list", "refused", "spent budget", "unknown model"],
)
async def test_local_ranker_chooses_when_model_cannot(
    tmp_path: Path, memory: Path, replies: list[dict[str, Any]], options: dict[str, Any], reason: str
) -> None:
    async with open_work(tmp_path, turn(), *replies, is_strict=False, **options) as work:
        assert "8417" in text_of(await work.ask(QUERY))
        assert [event.by for event in work.of_type(Recalled)] == ["local"]
        assert reason in work.failures[0]


async def test_failure_of_ranker_gives_no_memories_and_no_error(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise sqlite3.OperationalError("out of memory")

    monkeypatch.setattr("coterie.memory.recall.bm25.refresh_cache", fail)
    async with open_work(tmp_path, turn(), {**answer(), "text": "no"}, is_strict=False) as work:
        assert await work.ask(QUERY) is NOTHING
        assert work.failures[-1] == "out of memory"
        assert not work.of_type(Recalled)
        await work.run()


async def test_empty_store_or_single_word_causes_no_event(tmp_path: Path) -> None:
    async with open_work(tmp_path) as work:
        assert await work.ask(QUERY) is NOTHING
        assert not (tmp_path / "memory").exists()
        write(tmp_path / "memory", "ports.md", "The staging server listens on port 8417.")
        assert await work.ask("port") is NOTHING
        assert await work.ask("") is NOTHING
        assert work.events == []
        assert not work.requests("recall")


async def test_memory_is_shown_once_until_compaction(tmp_path: Path, memory: Path) -> None:
    async with open_work(tmp_path, by="local") as work:
        assert work.recall.is_local
        assert "8417" in text_of(await work.ask(QUERY))
        (event,) = work.of_type(Recalled)
        assert (event.by, event.chosen, event.cost_usd) == ("local", [str(memory / "ports.md")], "0")
        assert not work.requests("recall")
        assert await work.ask(QUERY) is NOTHING
        assert work.of_type(Recalled)[-1].left_out[str(memory / "ports.md")] == "in the context already"
        assert work.of_type(Recalled)[-1].candidates == 1
        await work.recall.on_compacted(work.agent, None)  # type: ignore[arg-type]  # the event is not read
        assert "8417" in text_of(await work.ask(QUERY))


@pytest.mark.parametrize("is_read_first", [True, False])
async def test_memory_read_by_agent_before_or_during_query_is_not_shown(
    tmp_path: Path, memory: Path, *, is_read_first: bool
) -> None:
    path = memory / "ports.md"
    async with open_work(tmp_path, by="local") as work:
        if is_read_first:
            work.agent.workspace.seen.record(path, path.read_bytes())
        work.recall.begin(QUERY)
        await work.recall.wait_until_idle()
        work.agent.workspace.seen.record(path, path.read_bytes())
        assert work.recall.take_found() is NOTHING


async def test_shown_bytes_per_session_are_limited(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "memory", f"{number}.md", "the staging port " * 20)
    settings = attrs.evolve(SETTINGS, session_bytes=1_200)
    async with open_work(tmp_path, by="local", settings=settings) as work:
        added = await work.ask("which staging port")
        (event,) = work.of_type(Recalled)
        assert len(event.chosen) == 2
        assert sorted(event.left_out.values()) == ["no room is left for it"] * 2
        work.agent.append_message("user", added.blocks, *added.records)
        assert event.bytes <= 1_200
    settings = attrs.evolve(SETTINGS, session_bytes=event.bytes)
    async with open_work(tmp_path, by="local", settings=settings) as again:
        assert await again.ask("which staging port") is NOTHING
        assert again.events == []


async def test_agent_does_not_wait_for_memories(tmp_path: Path, memory: Path) -> None:
    """The recall request is answered only after the agent's first turn; the next message contains the memories."""
    tools = {"tools": [{"Note": {"text": "x"}}], "signal": "turned"}
    late = {**answer("ports.md"), "until": "turned"}
    async with open_work(tmp_path, tools, turn(), late) as work:
        work.recall.begin("where does staging listen?")
        await work.run()
        await work.recall.wait_until_idle()
        assert work.of_type(Recalled)
        said = b"8417" in work.agent.conversation.prefix_bytes()
        assert said or "8417" in text_of(work.recall.take_found())


async def test_memories_follow_results_and_keep_prefix_cached(tmp_path: Path, memory: Path) -> None:
    script = [{"tools": [{"Note": {"text": "lorem " * 600}}]}, {"tools": [{"Note": {"text": "y"}}]}, turn()]
    async with open_work(tmp_path, *script, by="local") as work:
        work.recall.begin(QUERY)
        await work.recall.wait_until_idle()
        await work.run()
        role, blocks = work.agent.conversation.messages[2]
        assert role == "user"
        assert [json.loads(block)["type"] for block in blocks] == ["tool_result", "text"]
        assert b"8417" in blocks[-1]
        usages = [entry["usage"] for entry in work.served.requests]
        cached = usages[1]["cache_read_input_tokens"] + usages[1]["cache_creation_input_tokens"]
        assert usages[2]["cache_read_input_tokens"] == cached > 0
        loaded = load_transcript(work.agent.transcript.path)
        assert loaded.recalled == {str(memory / "ports.md")}
        assert loaded.recalled_bytes == work.of_type(Recalled)[0].bytes
    async with open_work(tmp_path, by="local") as again:
        assert await again.ask(QUERY) is NOTHING, "a resumed agent has seen it"


async def test_all_stores_are_searched(tmp_path: Path, memory: Path) -> None:
    write(tmp_path / "reviewer", "ports.md", "The reviewer knows port 9000 of the staging server.")
    names = ("reviewer:1/ports.md", "ports.md")
    async with open_work(tmp_path, turn(), answer(*names), stores=("memory", "reviewer")) as work:
        text = text_of(await work.ask("which ports are there"))
        assert text.index("9000") < text.index("8417")
        assert not work.failures
        assert read_queries(tmp_path / "reviewer") == read_queries(memory)
    async with open_work(tmp_path, by="local", stores=("memory", "reviewer")) as work:
        await work.ask("staging port")
        assert {Path(path).parent.name for path in work.of_type(Recalled)[-1].chosen} == {"memory", "reviewer"}


async def test_model_is_offered_best_matches_of_many_memories(tmp_path: Path, memory: Path) -> None:
    for number in range(20):
        write(memory, f"other{number}.md", f"nothing {number}")
        os.utime(memory / f"other{number}.md", (2_000_000_000, 2_000_000_000))
    settings = attrs.evolve(SETTINGS, scan=3)
    async with open_work(tmp_path, turn(), answer("ports.md", "other3.md"), settings=settings) as work:
        assert "8417" in text_of(await work.ask(QUERY))
        (event,) = work.of_type(Recalled)
        assert event.candidates == 22
        assert event.chosen == [str(memory / "ports.md")]


async def test_later_user_text_is_searched_once_before_next_call(tmp_path: Path, memory: Path) -> None:
    async with open_work(tmp_path, by="local") as work:
        await work.recall.before_call(work.agent)
        await work.recall.wait_until_idle()
        assert work.of_type(Recalled) == [], "nobody has said anything"
        work.agent.apply_record(UserTextRecord(texts=[QUERY]))
        for _ in range(2):
            await work.recall.before_call(work.agent)
            await work.recall.wait_until_idle()
        assert len(work.of_type(Recalled)) == 1
        assert str(memory / "ports.md") in work.of_type(Recalled)[0].chosen
        assert "8417" in text_of(work.recall.take_found())
