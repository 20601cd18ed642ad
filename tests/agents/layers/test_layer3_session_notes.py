"""Session notes: a helper writes them over real HTTP while its agent runs."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.layer_events import NotesUpdated
from coterie.agents.layers.layer3_session_notes import NotesState, SessionNotesLayer
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.tools.files.edit import Edit
from coterie.errors import ConfigInvalid
from coterie.files import file_faults
from coterie.memory.layer_settings import NotesSettings
from tests.agents.disk_faults import FaultAt
from tests.agents.opened_layers import begin_section, open_notes
from tests.agents.scripted_agent import NotingTool, ObservedAgent, SpentGateway, open_agent, watch

EAGER = NotesSettings(first=1_000, step=500, calls=1, share=100.0)
"""Settings for an update after each turn with a long result, without a cost limit."""
ONCE = attrs.evolve(EAGER, step=100_000)
"""Settings for one update."""


def long(word: str) -> str:
    return f"result {word}: " + "lorem ipsum " * 400


def turns(count: int, **last: Any) -> list[dict[str, Any]]:
    """Script with one tool call per turn, then two answers."""
    calls = [{"thinking": "what next", "tools": [{"Note": {"text": str(number)}}]} for number in range(count)]
    return [*calls, {"text": "done", **last}, {"text": "done again"}]


def edit(path: Path, old: str, new: str) -> dict[str, Any]:
    return {"Edit": {"file_path": str(path), "old_string": old, "new_string": new}}


def notes_reply(*edits: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"purpose": "notes", "tools": list(edits), **facts}


def worklog(directory: Path, **facts: Any) -> dict[str, Any]:
    return notes_reply(begin_section(directory, "Worklog", "- one"), **facts)


@attrs.frozen(kw_only=True)
class Work(ObservedAgent):
    """An agent with session notes, its events and the server."""

    notes: SessionNotesLayer

    async def write(self, words: str | None = None) -> None:
        await self.run(words)
        await self.notes.wait_until_written()

    async def stand(self) -> NotesState:
        """Return the notes, which must exist."""
        current = await self.notes.current()
        assert current is not None
        return current


@asynccontextmanager
async def open_work(
    directory: Path,
    *script: dict[str, Any],
    act: Callable[[str], Any] = long,
    settings: NotesSettings = EAGER,
    standings: tuple[PinnedSection, ...] = (),
    gate: LocalGateway | None = None,
) -> AsyncIterator[Work]:
    tool = NotingTool(name="Note", act=act)
    async with (
        open_agent(json.dumps({"default": list(script)}), directory, tool, Edit(), gate=gate) as (agent, served),
        open_notes(agent, settings, standings) as notes,
    ):
        yield Work(agent=agent, notes=notes, events=watch(agent), served=served)


async def test_notes_are_written_while_agent_works(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    script = [
        *turns(2),
        notes_reply(
            begin_section(tmp_path, "Current State", "Looking at result 0."),
            begin_section(tmp_path, "Errors & Corrections", "Not twice."),
            begin_section(tmp_path, "Worklog", "- one"),
        ),
        notes_reply(edit(path, "- one", "- one\n- two")),
        notes_reply(edit(path, "- two", "- two\n- three"), times="always"),
    ]
    async with open_work(tmp_path, *script) as work:
        assert await work.notes.current() is None
        await work.write()
        assert work.of_type(NotesUpdated)
        assert not work.failures
        assert (
            work.of_type(NotesUpdated)[0].path,
            work.of_type(NotesUpdated)[0].edits,
            work.of_type(NotesUpdated)[0].trimmed,
        ) == (str(path), 3, [])
        assert path.stat().st_mode & 0o777 == 0o600
        stand = await work.stand()
        assert stand.text.startswith("# Current State\nLooking at result 0.\n\n# Errors & Corrections\nNot twice.")
        assert stand.errors == "Not twice."
        record = load_transcript(work.agent.transcript.path).notes
        assert record is not None
        assert record.turn == stand.turn
        assert Decimal(record.cost_usd) == sum(Decimal(update.cost_usd) for update in work.of_type(NotesUpdated))
        assert Decimal(record.turns_usd) > 0


async def test_helper_shares_prefix_and_covers_turns_before_its_start(tmp_path: Path) -> None:
    """The update begins after the second reply, so the third turn is the first that the notes do not cover."""
    async with open_work(tmp_path, *turns(4), worklog(tmp_path), settings=ONCE) as work:
        await work.write()
        assert (await work.stand()).turn == 3
        (entry,) = work.requests("notes")
        before = work.requests("turn")[1]["usage"]
        cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
        assert entry["usage"]["cache_read_input_tokens"] == cached > 1_000
        assert entry["usage"]["cache_creation_input_tokens"] == 0
        assert b"session-notes" not in work.agent.conversation.prefix_bytes()
        assert str(work.notes.path) not in work.agent.workspace.seen.known()


async def test_helper_can_edit_only_the_notes_file(tmp_path: Path) -> None:
    other, acted = tmp_path / "other.md", []
    other.write_text("mine")

    def act(word: str) -> str:
        acted.append(word)
        return long(word)

    allowed = begin_section(tmp_path, "Worklog", "- one")
    script = [*turns(2), notes_reply({"Note": {"text": "by a helper"}}, edit(other, "mine", "yours"), allowed)]
    script += [notes_reply({"Note": {"text": "again"}}, edit(tmp_path / "x.md", "a", "b"))]
    async with open_work(tmp_path, *script, act=act, settings=ONCE) as work:
        await work.write()
        assert acted == ["0", "1"]
        assert other.read_text() == "mine"
        assert len(work.requests("notes")) == 2
        assert [reason.partition(":")[0] for reason in work.failures] == [
            "an edit of the notes failed; the next update tries again"
        ]
        assert "- one" in work.notes.path.read_text()


async def test_only_one_update_runs_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    script = [
        *turns(5, signal="ended"),
        worklog(tmp_path, until="ended"),
        notes_reply(edit(path, "- one", "- two")),
    ]
    async with open_work(tmp_path, *script) as work:
        await work.write()
        assert len(work.of_type(NotesUpdated)) == len(work.requests("notes")) == 1
        await work.write("and now? " + long("9"))
        assert len(work.of_type(NotesUpdated)) == len(work.requests("notes")) == 2
        assert not work.failures


async def test_failed_edits_get_one_more_turn(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    script = [
        *turns(2),
        notes_reply(begin_section(tmp_path, "Worklog", "- one"), edit(path, "no such line", "x")),
        notes_reply(begin_section(tmp_path, "Workflow", "make")),
    ]
    async with open_work(tmp_path, *script, settings=ONCE) as work:
        await work.write()
        assert [update.edits for update in work.of_type(NotesUpdated)] == [2]
        assert len(work.requests("notes")) == 2
        assert (await work.stand()).text == "# Workflow\nmake\n\n# Worklog\n- one"


def no_edit(text: str, **facts: Any) -> dict[str, Any]:
    return {"purpose": "notes", "text": text, "times": "always", **facts}


@pytest.mark.parametrize(
    ("replies", "options", "reason"),
    [
        ([], {}, "400 invalid_request_error"),
        ([no_edit("No.", stop="refusal")], {}, "stopped with refusal"),
        ([no_edit("All noted.")], {}, "the model made no edit"),
        ([no_edit("x", stop="max_tokens")], {}, "stopped with max_tokens"),
        ([], {"gate": SpentGateway(refused="notes")}, "raise the budget"),
    ],
    ids=["no reply", "refused", "only text", "cut", "spent budget"],
)
async def test_failed_updates_are_events_and_become_rarer(
    tmp_path: Path, replies: list[dict[str, Any]], options: dict[str, Any], reason: str
) -> None:
    async def act(word: str) -> str:
        await work.notes.wait_until_written()
        return long(word)

    async with open_work(tmp_path, *turns(12), *replies, act=act, **options) as work:
        await work.write()
        assert not work.of_type(NotesUpdated)
        assert len(work.failures) == 4  # of twelve turns that have grown enough for one
        assert all(reason in failure for failure in work.failures)
        assert await work.notes.current() is None


@pytest.mark.parametrize("suffix", [".jsonl", ".draft"])
async def test_update_that_cannot_be_stored_is_event_and_does_not_count(tmp_path: Path, suffix: str) -> None:
    """The disk is full for the transcript, or for the notes."""
    script = [*turns(0), worklog(tmp_path, until="go")]
    async with open_work(tmp_path, *script, settings=attrs.evolve(EAGER, first=1)) as work:
        await work.run()
        with file_faults(FaultAt("write", lambda path: path.suffix == suffix)):
            work.served.server.control.signals.raise_signal("go")
            await work.notes.wait_until_written()
        assert "No space" in work.failures[0]
        assert await work.notes.current() is None
        assert load_transcript(work.agent.transcript.path).notes is None


@pytest.mark.parametrize(("is_link", "reason"), [(True, "symbolic links"), (False, "is read-only")])
async def test_unusable_notes_file_prevents_model_call(tmp_path: Path, *, is_link: bool, reason: str) -> None:
    target = tmp_path / ("target.md" if is_link else "notes.md")
    target.write_text("# Worklog\nmine\n")
    target.chmod(0o400)
    if is_link:
        (tmp_path / "notes.md").symlink_to(target)
    async with open_work(tmp_path, *turns(2)) as work:
        await work.write()
        assert reason in work.failures[0]
        assert not work.requests("notes")
        assert target.read_text() == "# Worklog\nmine\n"


async def test_resumed_agent_continues_notes_and_their_costs(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    settings = attrs.evolve(EAGER, step=2_000)
    async with open_work(tmp_path, *turns(2), worklog(tmp_path), settings=settings) as work:
        await work.write()
        [first] = work.of_type(NotesUpdated)
    script = [*turns(2), {"text": "and again"}, notes_reply(edit(path, "- one", "- two"))]
    async with open_work(tmp_path, *script, settings=settings) as work:
        stand = await work.stand()
        assert (stand.text, stand.turn) == ("# Worklog\n- one", 3)
        await work.write("and now?")
        assert not work.requests("notes")
        await work.write(long("9") * 2)
        [second] = work.of_type(NotesUpdated)
        record = load_transcript(work.agent.transcript.path).notes
        assert record is not None
        assert record.turn == 6
        assert Decimal(record.cost_usd) == Decimal(first.cost_usd) + Decimal(second.cost_usd)
        path.unlink()
        assert await work.notes.current() is None


async def test_fork_counts_growth_from_inherited_context(tmp_path: Path) -> None:
    script = [*turns(1), worklog(tmp_path)]
    async with open_agent(json.dumps({"default": script}), tmp_path, NotingTool(name="Note", act=long), Edit()) as (
        agent,
        served,
    ):
        agent.append_message("user", [text_block(long("1") * 10)])
        agent.fork_of, agent.inherited = "lead", len(agent.conversation)
        async with open_notes(agent, attrs.evolve(EAGER, first=5_000)) as notes:
            work = Work(agent=agent, notes=notes, events=[], served=served)
            await work.write()
            assert not work.requests("notes")
            await work.write(long("2") * 5)
            assert len(work.requests("notes")) == 1


async def test_growth_is_counted_from_context_after_compaction(tmp_path: Path) -> None:
    script = [*turns(2), worklog(tmp_path, times="always")]
    async with open_work(tmp_path, *script, settings=attrs.evolve(EAGER, step=1_500)) as work:
        await work.write()
        asked = len(work.requests("notes"))
        work.agent.append_message("user", [text_block(long("9") * 2)])
        await work.notes.on_compacted(work.agent, None)  # type: ignore[arg-type]  # the event is not read
        await work.write()
        assert len(work.requests("notes")) == asked


@attrs.frozen
class FixedPinnedText:
    heading: str
    words: str | None

    async def text(self, _agent: Agent) -> str:
        """Return the text. Raises `OSError` if there is none."""
        if self.words is None:
            raise OSError("the roster is gone")
        return self.words


async def test_pinned_sections_are_written_and_long_ones_trimmed(tmp_path: Path) -> None:
    """Sections over their limit are trimmed, which is reported."""
    path = tmp_path / "notes.md"
    script = [*turns(2), notes_reply(begin_section(tmp_path, "Learnings", "long words " * 100))]
    standings = (
        FixedPinnedText("Team", "- scout: running"),
        FixedPinnedText("Open tasks", None),
        FixedPinnedText("Mail", ""),
    )
    async with open_work(tmp_path, *script, settings=attrs.evolve(ONCE, section=50), standings=standings) as work:
        await work.write()
        text = path.read_text()
        assert "# Team\n- scout: running" in text
        assert "# Mail" not in text
        assert work.failures == ["Open tasks: the roster is gone"]
        assert [update.trimmed for update in work.of_type(NotesUpdated)] == [["Learnings"]]
        assert "[Trimmed to 50 tokens" in text
        assert len(text) < 1_500


async def test_user_can_configure_template_and_prompt(tmp_path: Path) -> None:
    template, prompt, path = tmp_path / "template.md", tmp_path / "prompt.md", tmp_path / "notes.md"
    template.write_text("# Goal of {{agent}}\n_what for_\n")
    prompt.write_text("Mend {{path}}, now: {{notes}}")
    rule = {"last_user_text": f"Mend {path}, now: # Goal of main"}
    reply = notes_reply(edit(path, "_what for_", "_what for_\nto {{open}}win}}"))
    script = [*turns(2), {**reply, "when": rule}]
    settings = attrs.evolve(ONCE, template=template, prompt=prompt)
    async with open_work(tmp_path, *script, settings=settings) as work:
        await work.write()
        assert not work.failures
        assert (await work.stand()).text == "# Goal of main\nto {{win}}"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("template", None, "does not exist"),
        ("template", "# Goal {{weather}}", "has an unknown slot {{weather}}; use one of {{agent}}, {{project}}"),
        ("prompt", "Edit {{path}}: {{notes}} {{wether}}", "has an unknown slot {{wether}}"),
        ("prompt", "Edit {{path}}", "needs the slot {{notes}}"),
        ("prompt", "\udcff", "cannot be read: not UTF-8"),
    ],
)
async def test_unusable_template_or_prompt_is_refused(tmp_path: Path, name: str, text: str | None, reason: str) -> None:
    file = tmp_path / "given.md"
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    files: dict[str, Any] = {name: file}
    async with open_agent(json.dumps({"default": turns(0)}), tmp_path) as (agent, _):
        with pytest.raises(ConfigInvalid) as caught:
            async with open_notes(agent, NotesSettings(**files)):
                pass
    assert str(caught.value).startswith(f"{file}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
