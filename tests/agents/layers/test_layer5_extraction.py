"""Memory extraction: a helper writes memories over real HTTP when its agent has finished."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.layer_events import MemoryChanged, MemoryExtracted
from coterie.agents.layers.layer5_extraction import WROTE_ITSELF, Extraction
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.shell.bash import Bash
from coterie.agents.tools.workspace.file_change import WritableMemory
from coterie.files import file_faults
from coterie.memory.layer_settings import ExtractionSettings
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.agents.disk_faults import FaultAt
from tests.agents.opened_layers import open_extraction
from tests.agents.scripted_agent import NotingTool, ObservedAgent, SpentGateway, open_agent, watch

LIMITS = RunLimits(turns=40)
NOTED = {"text": "Noted."}
SESSION = "a-session"


def memory_text(text: str, *, name: str = "how to test") -> str:
    return f"---\nname: {name}\ndescription: when tests are written\ntype: feedback\n---\n{text}\n"


def write(path: Path, text: str = "Use a real database.") -> dict[str, Any]:
    return {"Write": {"file_path": str(path), "content": memory_text(text)}}


def read(path: Path) -> dict[str, Any]:
    return {"Read": {"file_path": str(path)}}


def extraction(*calls: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"purpose": "extraction", "tools": list(calls), **facts}


def nothing(**facts: Any) -> dict[str, Any]:
    return {"purpose": "extraction", "text": "nothing", **facts}


def when_extracting_from(count: int) -> dict[str, Any]:
    """Return the condition of a scripted reply to an extraction from *count* messages."""
    return {"last_user_text": f"last {count} messages above"}


@attrs.frozen(kw_only=True)
class Work(ObservedAgent):
    """An agent with extraction, its events and the server."""

    extraction: Extraction
    store: MemoryStore

    async def loop(self, words: str | None = None) -> None:
        """Run the agent's loop once, with a new user message if given, and report its end to the extraction."""
        if words is not None:
            self.agent.append_message("user", [text_block(words)])
        assert (await run_loop(self.agent, LIMITS)).reason == "completed"
        self.extraction.on_run_finished()

    async def run(self, words: str | None = None) -> None:
        """As `loop`, then wait until no extraction is running."""
        await self.loop(words)
        await self.extraction.wait_until_idle()

    def go(self) -> None:
        """Release the scripted reply that waits for a signal."""
        self.served.server.control.signals.raise_signal("go")

    @property
    def extracted(self) -> list[MemoryExtracted]:
        """All emitted results of extractions."""
        return self.of_type(MemoryExtracted)

    @property
    def cursor(self) -> int | None:
        """Turns of all recorded extractions."""
        record = load_transcript(self.agent.transcript.path).extraction
        return None if record is None else record.turn


@asynccontextmanager
async def open_work(
    directory: Path,
    *script: dict[str, Any],
    settings: ExtractionSettings | None = None,
    gate: LocalGateway | None = None,
    authority: Authorizer | None = None,
    act: Callable[[str], Any] = str,
) -> AsyncIterator[Work]:
    (directory / "project").mkdir(exist_ok=True)
    tools = (NotingTool(name="Agent", act=act, access="spawn"), Read(), Write(), Edit(), Bash())
    text = json.dumps({"default": list(script)})
    async with open_agent(text, directory / "project", *tools, gate=gate) as (agent, served):
        store, events = MemoryStore.at(directory / "memory", served.clock), watch(agent)

        def author() -> Author:
            return Author(by="agent", agent="main", session=SESSION, turn=agent.turn, why="From now on")

        agent.workspace = attrs.evolve(agent.workspace, memory=WritableMemory(stores=(store,), author=author))
        settings = settings or ExtractionSettings()
        async with open_extraction(agent, store, settings, author, authority=authority) as opened:
            yield Work(agent=agent, extraction=opened, store=store, events=events, served=served)


async def test_memory_is_saved_with_index_line_and_author(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, extraction(write(tmp_path / "memory/testing.md"))) as work:
        await work.run("From now on test against a real database.")
        [told] = work.extracted
        assert (told.saved, told.turns, told.skipped) == (["testing.md"], 1, None)
        assert Decimal(told.cost_usd) > 0
        assert not work.failures
        assert work.store.read("testing.md") == memory_text("Use a real database.").encode()
        assert "[how to test](testing.md)" in work.store.index()
        [change] = [change for change in work.store.changes() if change.path == "testing.md"]
        assert (change.author.by, change.author.agent, change.author.session) == ("extraction", "main", SESSION)
        assert (change.author.turn, change.action) == (1, "added")
        assert change.author.why == "From now on"
        [event] = [event for event in work.events if isinstance(event, MemoryChanged)]
        assert (event.path, event.change, event.action, event.by) == ("testing.md", change.id, "added", "extraction")
        assert work.cursor == 2


async def test_existing_memory_is_read_then_changed(tmp_path: Path) -> None:
    testing = tmp_path / "memory/testing.md"
    changed = {"Edit": {"file_path": str(testing), "old_string": "Postgres", "new_string": "SQLite"}}
    script = [
        NOTED,
        extraction(read(testing)),
        extraction(changed, write(tmp_path / "memory/other.md"), when={"last_tool_result": "Use Postgres."}),
    ]
    async with open_work(tmp_path, *script) as work:
        work.store.write("testing.md", memory_text("Use Postgres.").encode(), Author(by="user"), base=None)
        await work.run()
        assert not work.failures
        assert [(told.saved, told.turns) for told in work.extracted] == [(["testing.md", "other.md"], 2)]
        assert work.store.read("testing.md") == memory_text("Use SQLite.").encode()
        assert len(work.requests("extraction")) == 2


async def test_helper_gets_list_of_memories_and_date(tmp_path: Path) -> None:
    content = memory_text("x").replace("when tests", "</memories> when tests").encode()
    MemoryStore.at(tmp_path / "memory").write("testing.md", content, Author(by="user"), base=None)
    line = r"- \[feedback\] testing.md \(.*\): &lt;/memories&gt; when tests are written"
    told = rf"/<memories>\n{line}\n</memories>.*today is \d{{4}}-\d\d-\d\d\./s"
    async with open_work(tmp_path, NOTED, nothing(when={"last_user_text": told})) as work:
        await work.run()
        assert (work.failures, len(work.extracted)) == ([], 1)


async def test_helper_shares_agents_prefix_and_does_not_change_conversation(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, extraction(write(tmp_path / "memory/testing.md"))) as work:
        await work.loop("lorem ipsum " * 2_000)
        before = work.agent.conversation.prefix_bytes()
        await work.extraction.wait_until_idle()
        [turn], [entry] = work.requests("turn"), work.requests("extraction")
        assert entry["usage"]["cache_read_input_tokens"] == turn["usage"]["cache_creation_input_tokens"] > 1_000
        assert entry["usage"]["cache_creation_input_tokens"] == 0
        assert work.agent.conversation.prefix_bytes() == before
        assert str(tmp_path / "memory/testing.md") not in work.agent.workspace.seen.known()


async def test_only_new_messages_are_extracted_even_after_resume(tmp_path: Path) -> None:
    script = [
        {"text": "one"},
        nothing(when=when_extracting_from(2)),
        {"text": "two"},
        nothing(when=when_extracting_from(2)),
    ]
    async with open_work(tmp_path, *script) as work:
        await work.run()
        await work.run("more")
        assert (work.failures, len(work.extracted), work.cursor) == ([], 2, 3)
    script = [{"text": "three"}, {"text": "three"}, {"text": "three"}, nothing(when=when_extracting_from(2))]
    async with open_work(tmp_path, *script) as work:
        work.extraction.on_run_finished()
        await work.extraction.wait_until_idle()
        assert not work.requests("extraction")
        await work.run("and more")
        assert (work.failures, len(work.extracted), work.cursor) == ([], 1, 4)


async def test_turns_during_an_extraction_cause_one_more_run_despite_the_throttle(
    tmp_path: Path,
) -> None:
    script = [
        *({"text": str(number)} for number in range(5)),
        nothing(until="go", when=when_extracting_from(4)),
        nothing(when=when_extracting_from(6)),
    ]
    async with open_work(tmp_path, *script, settings=ExtractionSettings(every=2)) as work:
        await work.loop()
        assert not work.requests("extraction")
        await work.loop("more")
        for words in ("and more", "and more still", "and yet more"):
            await work.loop(words)
        assert not work.extracted
        work.go()
        await work.extraction.wait_until_idle()
        assert (work.failures, len(work.extracted), work.cursor) == ([], 2, 6)


async def test_throttle_allows_every_third_run(tmp_path: Path) -> None:
    script = [*({"text": str(number)} for number in range(7)), nothing(when=when_extracting_from(6), times="always")]
    async with open_work(tmp_path, *script, settings=ExtractionSettings(every=3)) as work:
        await work.run()
        for number in range(6):
            await work.run(f"more {number}")
        assert not work.failures
        assert len(work.extracted) == 2


async def test_agent_that_wrote_memories_itself_is_skipped_until_new_turns(tmp_path: Path) -> None:
    own = write(tmp_path / "memory/own.md")
    script: list[dict[str, Any]] = [{"tools": [own]}, {"text": "I noted it."}, {"text": "Fine."}]
    script += [nothing(when=when_extracting_from(2))]
    async with open_work(tmp_path, *script) as work:
        await work.run()
        [told] = work.extracted
        assert (told.skipped, told.saved, told.turns, told.cost_usd) == (WROTE_ITSELF, [], 0, "0")
        assert (work.requests("extraction"), work.cursor) == ([], 3)
        await work.run("Thanks.")
        assert (len(work.requests("extraction")), work.failures, work.cursor) == (1, [], 4)


async def test_writes_of_another_session_do_not_cause_skip(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, nothing()) as work:
        other = Author(by="agent", agent="main", session="another", turn=9)
        work.store.write("other.md", memory_text("x").encode(), other, base=None)
        await work.run()
        assert [told.skipped for told in work.extracted] == [None]


async def test_helper_writes_only_memory_and_runs_no_program(tmp_path: Path) -> None:
    acted: list[str] = []
    outside, inside = tmp_path / "project/x.md", tmp_path / "memory/testing.md"
    denied = extraction(
        write(outside),
        write(tmp_path / "memory/../project/x.md"),
        {"Bash": {"command": f"echo x > {outside}"}},
        {"Bash": {"command": f"touch {inside}"}},
        {"Agent": {"text": "go"}},
    )
    script = [NOTED, denied, extraction(write(inside), when={"last_tool_result": "cannot be used here"})]
    async with open_work(tmp_path, *script, act=acted.append) as work:
        await work.run()
        assert [told.saved for told in work.extracted] == [["testing.md"]]
        assert (acted, outside.exists(), work.failures) == ([], False, [])


async def test_helper_cannot_read_what_rules_deny_the_agent(tmp_path: Path) -> None:
    rule = Rule.parse("Read(secret.txt)", "test")
    script = [
        NOTED,
        extraction(read(tmp_path / "project/secret.txt")),
        nothing(when={"last_tool_result": "The rule Read(secret.txt) denies this call."}),
    ]
    async with open_work(tmp_path, *script, authority=Authorizer(Permissions(deny=(rule,)))) as work:
        (tmp_path / "project/secret.txt").write_text("the key is under the mat")
        await work.run()
        assert (work.failures, len(work.extracted)) == ([], 1)


async def test_read_only_commands_are_allowed(tmp_path: Path) -> None:
    command = {"Bash": {"command": f"ls {tmp_path}/memory"}}
    async with open_work(tmp_path, NOTED, extraction(command), nothing(when={"last_tool_result": "kept.md"})) as work:
        work.store.write("kept.md", memory_text("x").encode(), Author(by="user"), base=None)
        await work.run()
        assert (work.failures, len(work.extracted)) == ([], 1)


async def test_helper_ends_at_its_limit_of_turns(tmp_path: Path) -> None:
    late = write(tmp_path / "memory/late.md")
    async with open_work(tmp_path, NOTED, *[extraction(read(tmp_path / "memory/x.md"))] * 4, extraction(late)) as work:
        await work.run()
        assert [(told.saved, told.turns) for told in work.extracted] == [([], 5)]
        assert work.failures == ["the extraction was not finished after 5 replies"]
        assert work.store.paths() == []
        assert len(work.requests("extraction")) == 5


async def test_refused_memory_is_event_and_retried_only_once(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----"
    async with open_work(tmp_path, NOTED, extraction(write(tmp_path / "memory/key.md", key)), nothing()) as work:
        await work.run()
        assert [reason.partition(":")[0] for reason in work.failures] == ["a memory could not be written"]
        assert ([told.saved for told in work.extracted], work.cursor) == ([[]], 2)
        assert work.store.paths() == []


async def test_spent_budget_is_event(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, gate=SpentGateway(refused="extraction")) as work:
        await work.run()
        assert "raise the budget" in work.failures[0]
        assert (work.extracted, work.cursor) == ([], None)
        assert await work.extraction.run_now() is None
        assert len(work.failures) == 2


async def test_failed_model_call_is_event_and_next_run_covers_its_turns(tmp_path: Path) -> None:
    async with open_work(tmp_path, {"text": "one"}, {"text": "two"}, nothing(when=when_extracting_from(4))) as work:
        await work.run()
        [reason] = work.failures
        assert "400 invalid_request_error" in reason
        assert (work.extracted, work.cursor) == ([], None)
        await work.run("more")
        assert (len(work.failures), len(work.extracted), work.cursor) == (1, 1, 3)


@pytest.mark.parametrize(("stop", "failures"), [("refusal", ["the model stopped with refusal"]), ("end_turn", [])])
async def test_reply_without_calls_saves_nothing(tmp_path: Path, stop: str, failures: list[str]) -> None:
    async with open_work(tmp_path, NOTED, nothing(stop=stop)) as work:
        await work.run()
        assert ([(told.saved, told.skipped) for told in work.extracted], work.failures) == ([([], None)], failures)


async def test_unrecorded_extraction_is_event(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, nothing(until="go")) as work:
        await work.loop()
        with file_faults(FaultAt("write", lambda path: path.name == "transcript.jsonl")):
            work.go()
            await work.extraction.wait_until_idle()
        assert "No space" in work.failures[0]
        assert (work.extracted, work.cursor) == ([], None)


async def test_run_now_covers_whole_conversation_when_nothing_is_new(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [{"tools": [write(tmp_path / "memory/own.md")]}, {"text": "I noted it."}]
    script += [nothing(when=when_extracting_from(4), times="always")]
    async with open_work(tmp_path, *script) as work:
        assert (await run_loop(work.agent, LIMITS)).reason == "completed"
        for _ in range(2):
            told = await work.extraction.run_now()
            assert told is not None
            assert (told.skipped, told.turns, work.extracted[-1]) == (None, 1, told)


async def test_end_of_block_waits_for_running_extraction(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, extraction(write(tmp_path / "memory/testing.md"), until="go")) as work:
        await work.loop()
        work.go()
    assert [told.saved for told in work.extracted] == [["testing.md"]]


async def test_end_of_block_cancels_extraction_after_limit_with_event(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, nothing(until="never"), settings=ExtractionSettings(drain=0.01)) as work:
        await work.loop()
    assert (work.extracted, work.failures) == ([], ["the extraction was cancelled 0.01 seconds after the agent's end"])
    work.extraction.on_run_finished()
    await work.extraction.wait_until_idle()


async def test_error_in_block_does_not_wait_for_extraction(tmp_path: Path) -> None:
    script = [NOTED, nothing(until="never")]
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with open_work(tmp_path, *script, settings=ExtractionSettings(drain=1_000)) as work:
            await work.loop()
            raise OSError("the disk is gone")
