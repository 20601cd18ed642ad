"""Memory extraction: a helper writes memories over real HTTP when its agent has finished."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.events.layer_events import MemoryChanged, MemoryExtracted
from coterie.agents.layers.layer5_extraction import WROTE_ITSELF, Extraction
from coterie.agents.loop.conversation.transcript import load_transcript
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
        """As `run`, then report the end of the run to the extraction."""
        await self.run(words)
        self.extraction.on_run_finished()

    async def extract(self, words: str | None = None) -> None:
        await self.loop(words)
        await self.extraction.wait_until_idle()

    def go(self) -> None:
        """Release the scripted reply that waits for a signal."""
        self.served.server.control.signals.raise_signal("go")

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
        extraction = Extraction(agent, store, settings or ExtractionSettings(), author, authority=authority)
        async with extraction.open():
            yield Work(agent=agent, extraction=extraction, store=store, events=events, served=served)


async def test_memory_is_saved_with_index_line_and_author(tmp_path: Path) -> None:
    """The helper does not change its agent; what another session wrote is no reason to skip the extraction."""
    async with open_work(tmp_path, NOTED, extraction(write(tmp_path / "memory/testing.md"))) as work:
        other = Author(by="agent", agent="main", session="another", turn=9)
        work.store.write("other.md", memory_text("x", name="other").encode(), other, base=None)
        await work.loop("From now on test against a real database.")
        before = work.agent.conversation.prefix_bytes()
        await work.extraction.wait_until_idle()
        assert work.agent.conversation.prefix_bytes() == before
        assert str(tmp_path / "memory/testing.md") not in work.agent.workspace.seen.known()
        [told] = work.of_type(MemoryExtracted)
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
    """The helper is told the memories and the date."""
    testing = tmp_path / "memory/testing.md"
    changed = {"Edit": {"file_path": str(testing), "old_string": "Postgres", "new_string": "SQLite"}}
    line = r"- \[feedback\] testing.md \(.*\): &lt;/memories&gt; when tests are written"
    told = rf"/<memories>\n{line}\n</memories>.*today is \d{{4}}-\d\d-\d\d\./s"
    script = [
        NOTED,
        extraction(read(testing), when={"last_user_text": told}, times=1),
        extraction(changed, write(tmp_path / "memory/other.md"), when={"last_tool_result": "Use Postgres."}),
    ]
    async with open_work(tmp_path, *script) as work:
        memory = memory_text("Use Postgres.").replace("when tests", "</memories> when tests")
        work.store.write("testing.md", memory.encode(), Author(by="user"), base=None)
        await work.extract()
        assert not work.failures
        assert [(told.saved, told.turns) for told in work.of_type(MemoryExtracted)] == [(["testing.md", "other.md"], 2)]
        assert work.store.read("testing.md") == memory.replace("Postgres", "SQLite").encode()
        assert len(work.requests("extraction")) == 2


async def test_only_new_messages_are_extracted_even_after_resume(tmp_path: Path) -> None:
    script = [
        {"text": "one"},
        nothing(when=when_extracting_from(2)),
        {"text": "two"},
        nothing(when=when_extracting_from(2)),
    ]
    async with open_work(tmp_path, *script) as work:
        await work.extract()
        await work.extract("more")
        assert (work.failures, len(work.of_type(MemoryExtracted)), work.cursor) == ([], 2, 3)
    script = [{"text": "three"}, {"text": "three"}, {"text": "three"}, nothing(when=when_extracting_from(2))]
    async with open_work(tmp_path, *script) as work:
        work.extraction.on_run_finished()
        await work.extraction.wait_until_idle()
        assert not work.requests("extraction")
        await work.extract("and more")
        assert (work.failures, len(work.of_type(MemoryExtracted)), work.cursor) == ([], 1, 4)


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
        assert not work.of_type(MemoryExtracted)
        work.go()
        await work.extraction.wait_until_idle()
        assert (work.failures, len(work.of_type(MemoryExtracted)), work.cursor) == ([], 2, 6)


async def test_agent_that_wrote_memories_itself_is_skipped_until_new_turns(tmp_path: Path) -> None:
    own = write(tmp_path / "memory/own.md")
    script: list[dict[str, Any]] = [{"tools": [own]}, {"text": "I noted it."}, {"text": "Fine."}]
    script += [nothing(when=when_extracting_from(2))]
    async with open_work(tmp_path, *script) as work:
        await work.extract()
        [told] = work.of_type(MemoryExtracted)
        assert (told.skipped, told.saved, told.turns, told.cost_usd) == (WROTE_ITSELF, [], 0, "0")
        assert (work.requests("extraction"), work.cursor) == ([], 3)
        await work.extract("Thanks.")
        assert (len(work.requests("extraction")), work.failures, work.cursor) == (1, [], 4)


async def test_helper_writes_only_memory_and_runs_only_reading_commands(tmp_path: Path) -> None:
    acted: list[str] = []
    outside, inside = tmp_path / "project/x.md", tmp_path / "memory/testing.md"
    denied = extraction(
        write(outside),
        write(tmp_path / "memory/../project/x.md"),
        {"Bash": {"command": f"echo x > {outside}"}},
        {"Bash": {"command": f"touch {inside}"}},
        {"Agent": {"text": "go"}},
    )
    looking = extraction(
        {"Bash": {"command": f"ls {tmp_path}/memory"}}, when={"last_tool_result": "cannot be used here"}
    )
    script = [NOTED, denied, looking, extraction(write(inside), when={"last_tool_result": "kept.md"})]
    async with open_work(tmp_path, *script, act=acted.append) as work:
        work.store.write("kept.md", memory_text("x").encode(), Author(by="user"), base=None)
        await work.extract()
        assert [told.saved for told in work.of_type(MemoryExtracted)] == [["testing.md"]]
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
        await work.extract()
        assert (work.failures, len(work.of_type(MemoryExtracted))) == ([], 1)


async def test_failed_model_call_is_event_and_next_run_covers_its_turns(tmp_path: Path) -> None:
    gate = SpentGateway(refused="extraction")
    script = [{"text": "one"}, {"text": "two"}, nothing(when=when_extracting_from(4))]
    async with open_work(tmp_path, *script, gate=gate) as work:
        await work.extract()
        assert await work.extraction.run_now() is None
        assert ["raise the budget" in reason for reason in work.failures] == [True, True]
        gate.refused, work.events[:] = "", []
        assert await work.extraction.run_now() is None
        [reason] = work.failures
        assert "400 invalid_request_error" in reason
        assert (work.of_type(MemoryExtracted), work.cursor) == ([], None)
        await work.extract("more")
        assert (len(work.failures), len(work.of_type(MemoryExtracted)), work.cursor) == (1, 1, 3)


INSIDE = Path("../memory")
"""Path of the memory from the project."""
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("replies", "turns", "failures"),
    [
        (
            [*[extraction(read(INSIDE / "x.md"))] * 4, extraction(write(INSIDE / "late.md"))],
            5,
            ["the extraction of memories was stopped after 5 replies; raise layers.extraction.turns"],
        ),
        ([extraction(write(INSIDE / "key.md", KEY)), nothing()], 2, ["a memory could not be written"]),
    ],
    ids=["limit of turns", "refused memory"],
)
async def test_extraction_without_memories_counts(
    tmp_path: Path, replies: list[dict[str, Any]], turns: int, failures: list[str]
) -> None:
    async with open_work(tmp_path, NOTED, *replies) as work:
        await work.extract()
        assert [(told.saved, told.turns) for told in work.of_type(MemoryExtracted)] == [([], turns)]
        assert [reason.partition(":")[0] for reason in work.failures] == failures
        assert (work.store.paths(), work.cursor, len(work.requests("extraction"))) == ([], 2, turns)


async def test_unrecorded_extraction_is_event(tmp_path: Path) -> None:
    async with open_work(tmp_path, NOTED, nothing(until="go")) as work:
        await work.loop()
        with file_faults(FaultAt("write", lambda path: path.name == "transcript.jsonl")):
            work.go()
            await work.extraction.wait_until_idle()
        assert "No space" in work.failures[0]
        assert (work.of_type(MemoryExtracted), work.cursor) == ([], None)


async def test_run_now_covers_whole_conversation_when_nothing_is_new(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [{"tools": [write(tmp_path / "memory/own.md")]}, {"text": "I noted it."}]
    script += [nothing(when=when_extracting_from(4), times="always")]
    async with open_work(tmp_path, *script) as work:
        await work.run()
        for _ in range(2):
            told = await work.extraction.run_now()
            assert told is not None
            assert (told.skipped, told.turns, work.of_type(MemoryExtracted)[-1]) == (None, 1, told)


async def test_requested_extraction_waits_for_one_on_demand(tmp_path: Path) -> None:
    replies = nothing(until="go", when=when_extracting_from(2)), nothing(when=when_extracting_from(2))
    async with open_work(tmp_path, {"text": "one"}, {"text": "two"}, *replies) as work, trio.open_nursery() as nursery:
        await work.run()
        nursery.start_soon(work.extraction.run_now)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await work.loop("more")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(work.served.received) == 3
        work.go()
        await work.extraction.wait_until_idle()
        assert (work.failures, len(work.of_type(MemoryExtracted)), work.cursor) == ([], 2, 3)


async def test_end_of_block_cancels_extraction_after_limit_with_event(tmp_path: Path) -> None:
    """An extraction on demand waits for the running one."""
    settings = ExtractionSettings(drain=0.01)
    async with (
        open_work(tmp_path, NOTED, nothing(until="never"), settings=settings) as work,
        trio.open_nursery() as nursery,
    ):
        await work.loop()
        nursery.start_soon(work.extraction.run_now)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(work.served.received) == 2
        nursery.cancel_scope.cancel()
    assert (work.of_type(MemoryExtracted), work.failures) == (
        [],
        ["the extraction of memories was cancelled 0.01 s after the agent's end; raise layers.extraction.drain"],
    )
    work.extraction.on_run_finished()
    await work.extraction.wait_until_idle()


async def test_error_in_block_does_not_wait_for_extraction(tmp_path: Path) -> None:
    script = [NOTED, nothing(until="never")]
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with open_work(tmp_path, *script, settings=ExtractionSettings(drain=1_000)) as work:
            await work.loop()
            raise OSError("the disk is gone")
