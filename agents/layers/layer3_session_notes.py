"""Layer 3: session notes, a file with a summary of an agent's work; a helper (background model call) updates it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from coterie.agents.events.layer_events import Compacted, NotesUpdated
from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.layers.layer2_clearing import cleared_by_api
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection, section_text
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import NotesRecord
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.usage import Usage
from coterie.agents.prompts import render
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.tool import Tool, Workspace
from coterie.errors import ConfigInvalid
from coterie.memory.compaction.result_clearing import kept_size_after
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import CompactionSettings, NotesSettings
from coterie.memory.notes.document import NotesDocument
from coterie.memory.notes.notes_file import begin_update, end_update, read_file, read_notes, tokens_of, trim_notes
from coterie.memory.notes.notes_schedule import Delay, NotesSchedule, UpdateThreshold
from coterie.memory.notes.template import ERRORS, Template, default_template, fill_slots, find_slots

PURPOSE = "notes"
ROUNDS = 2
"""Number of replies in one update whose edits are executed: the second reply can correct failed edits of the first."""
_REQUIRED = ("path", "notes")
"""Slots `{{name}}` that the user's prompt file for notes must contain, because the model needs their values to edit."""


@attrs.define(eq=False)
class UpdateCost:
    """Counter of the cost and the edits of one update of the notes."""

    _model: Model
    cost: Decimal = Decimal(0)
    output: int = 0
    """Output tokens of all replies of the update."""
    replies: int = 0
    edits: int = 0
    failure: str | None = None
    """Error line if all edits of the last reply with edits failed; None if at least one of them succeeded."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; return True to stop the update, because all its edits succeeded or it was the last reply."""
        self.replies += 1
        self.cost += self._model.cost(reply.usage)
        self.output += reply.usage.output
        edits = [answer.result for answer in answers if answer.call["name"] == Edit.name]
        failed = [result for result in edits if result.is_error]
        self.edits += len(edits) - len(failed)
        if edits:
            self.failure = failed[-1].text.partition("\n")[0] if len(failed) == len(edits) else None
        return self.replies == ROUNDS or (bool(edits) and not failed)


@attrs.frozen(kw_only=True)
class NotesWriter:
    """Writer of the session notes of one agent, with their file, template, prompt and size limits."""

    path: Path
    """Path of the notes file, with the symbolic links of its directory resolved."""
    template: Template
    prompt: str | None
    """The user's own prompt with `{{slots}}`; None for the built-in prompt."""
    settings: NotesSettings
    facts: Mapping[str, str]
    """Values for slots in the user's own prompt, by slot name: agent and project."""
    pinned_sections: Sequence[PinnedSection]

    async def update(self, agent: Agent, start: HelperStart, spending: UpdateCost) -> tuple[NotesDocument, list[str]]:
        """Let a helper (fork of the agent) edit the notes to cover the conversation in *start*; add team, tasks, mail.

        Returns the notes, and the headings of the sections that were truncated to their limit. Each edit and the end of
        the update replace the whole file; cancellation keeps the edits made so far. Raises `NotesUnusable` and
        `OSError`, and the exceptions of `run_helper`.
        """
        notes, content = await trio.to_thread.run_sync(begin_update, self.path, self.template)
        reply = await run_helper(
            agent,
            self._directive(notes),
            PURPOSE,
            max_turns=ROUNDS + 1,
            denial=self._denial,
            start=attrs.evolve(start, known={self.path: content}),
            until=spending.count_reply,
        )
        if spending.failure is not None:
            raise NotesUnusable(f"an edit of the notes failed; the next update tries again: {spending.failure}")
        if not spending.edits:
            reason = f"the model made no edit of the notes and stopped with {reply.stop_reason}"
            raise NotesUnusable(f"{reason}; the next update tries again")
        kept = {section.heading: await section_text(section, agent, PURPOSE) for section in self.pinned_sections}
        end = partial(end_update, self.path, self.template, self.settings, kept)
        return await trio.to_thread.run_sync(end)

    def _directive(self, notes: NotesDocument) -> str:
        facts = {
            "path": str(self.path),
            "notes": attrs.evolve(notes, kept="").to_text().strip(),
            "section": f"{self.settings.section:,}",
            "total": f"{self.settings.total:,}",
        }
        if self.prompt is None:
            return render("notes", **facts)
        return fill_slots(self.prompt, {**self.facts, **facts})

    async def _denial(self, tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        """Return the reason to deny a tool call of the helper; None for an edit of the notes file, which is allowed."""
        if tool.name == Edit.name and list(tool.paths_affected(arguments, workspace)) == [self.path]:
            return None
        return f"Only Edit can be used here, and only on {self.path}."


def load_writer(
    agent: str, project: Path, scratch: Path, settings: NotesSettings, pinned: Sequence[PinnedSection] = ()
) -> NotesWriter:
    """Create the writer of the notes of the agent named *agent*, in the file `notes.md` of the directory *scratch*.

    The notes contain the text of the *pinned* sections (team, tasks, mail) verbatim. Blocks on the disk. Raises
    `ConfigInvalid` if the template or prompt file of the user is unusable.
    """
    facts = {"agent": agent, "project": str(project)}
    return NotesWriter(
        path=scratch.resolve() / "notes.md",
        template=default_template() if settings.template is None else _template(settings.template, facts),
        prompt=None if settings.prompt is None else _prompt(settings.prompt, facts),
        settings=settings,
        facts=facts,
        pinned_sections=pinned,
    )


def _template(path: Path, facts: Mapping[str, str]) -> Template:
    text = _user_text(path)
    try:
        return Template.parse(fill_slots(text, facts))
    except NotesUnusable as exc:
        raise ConfigInvalid(str(path), f"{exc}") from exc


def _prompt(path: Path, facts: Mapping[str, str]) -> str:
    text = _user_text(path)
    try:
        fill_slots(text, {**facts, **dict.fromkeys((*_REQUIRED, "section", "total"), "")})
    except NotesUnusable as exc:
        raise ConfigInvalid(str(path), f"{exc}") from exc
    for name in _REQUIRED:
        if name not in find_slots(text):
            raise ConfigInvalid(
                str(path), f"the prompt for session notes needs the slot {{{{{name}}}}}; add it to this file"
            )
    return text


def _user_text(path: Path) -> str:
    try:
        content = read_file(path, follow=True)
        if content is None:
            raise ConfigInvalid(
                str(path),
                "the file that [layers.notes] names does not exist; create it or change the setting",
            )
        return content.decode()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        hint = "correct the file, or the setting in [layers.notes] that names it"
        raise ConfigInvalid(str(path), f"the file cannot be read: {reason}; {hint}") from exc


DIRECTIVE = 1_000
"""Estimated tokens of the instructions for an update of the session notes, without the notes that they quote."""
OUTPUT = 1_000
"""Estimated output tokens of the first update of the notes."""
_DELAYS: dict[Delay | None, str] = {
    "growth": "the context has grown too little since the last update",
    "calls": "too few tool calls since the last update",
    "money": "another update would cost more than the notes' share of the cost of turns",
    None: "the context was full before another update was due",
}


@attrs.frozen(kw_only=True)
class NotesState:
    """Text of the session notes, and the turn up to which they cover the conversation."""

    text: str
    """All sections with content, except the pinned sections (team, tasks and mail)."""
    turn: int
    """First turn that the notes do not cover. They also lack the tool results of the turn before it."""
    errors: str
    """Section of the notes about errors: failed attempts that must not be repeated. Empty if there were none."""


@attrs.define(eq=False)
class SessionNotesLayer(BackgroundTask[HelperStart]):
    """Step after each reply that updates the agent's session notes in the background, one update at a time.

    A failure becomes an event and never reaches the agent. The end of the block of `open` cancels a running update; to
    keep the update, await `wait_until_written` first. After a restart of the agent, the recorded schedule continues.
    """

    name: ClassVar[str] = "session notes"
    _agent: Agent
    _writer: NotesWriter
    _compaction: CompactionSettings | None = None
    """Settings of compaction if it may use the notes as a summary; None otherwise.

    If set, the schedule of updates reserves money for an update shortly before a compaction.
    """
    _is_teammate: bool = True
    """False if the agent ends after a reply without tool calls, so that an update after such a reply is useless."""
    _schedule: NotesSchedule = attrs.field(init=False)
    _turn: int | None = attrs.field(init=False)
    """The first turn that the notes do not cover; None before the first update."""
    _tokens: int = attrs.field(default=0, init=False)
    """Estimated tokens of the notes after the last update."""
    _output: int = attrs.field(default=OUTPUT, init=False)
    """Output tokens of the last update, from which the cost of the next update is estimated."""

    def __attrs_post_init__(self) -> None:
        agent, record = self._agent, self._agent.transcript.loaded.notes
        full = agent.meter.thresholds.compact
        most = None if self._compaction is None else self._compaction.within(full).keep_most
        need = None if most is None else UpdateThreshold(tokens=full, most=most)
        self._turn = None if record is None else record.turn
        # The notes of the parent cover what a fork inherited.
        prefix, count = agent.conversation.prefix, min(agent.inherited, len(agent.conversation))
        inherited = sum(estimate_block(prefix[index].data) for index in range(count))
        since = min(inherited, agent.meter.tokens(agent.conversation))
        self._schedule = NotesSchedule(settings=self._writer.settings, need=need, since=since)
        if record is not None:
            turns, notes = Decimal(record.turns_usd), Decimal(record.cost_usd)
            self._schedule = attrs.evolve(
                self._schedule, since=record.tokens, has_begun=True, turns_usd=turns, notes_usd=notes
            )

    @property
    def path(self) -> Path:
        """Path of the session notes file."""
        return self._writer.path

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Start an update of the notes after *reply*, if an update is due and none is running."""
        tokens = agent.meter.tokens(agent.conversation)
        self._schedule = self._schedule.after_turn(tokens, len(reply.tool_calls), agent.model.cost(reply.usage))
        # After a clearing by the API, the helper's prompt would not match the agent's cache entries.
        is_useful = (self._is_teammate or bool(reply.tool_calls)) and not cleared_by_api(reply)
        if is_useful and self.is_open and not self.is_busy and self._delay(tokens) is None:
            self._schedule = self._schedule.after_start(tokens)
            self.submit(HelperStart.of(agent))

    @property
    def delay(self) -> str:
        """Reason why the notes do not cover the last turns, as a phrase for an error message."""
        if not self.is_open:
            return "they are no longer updated"
        if self.is_busy:
            return "an update is still running"
        if self._schedule.failures:
            return "the last update failed"
        return _DELAYS[self._delay(self._agent.meter.tokens(self._agent.conversation))]

    async def wait_until_written(self) -> None:
        """Wait until no update of the notes is running; this may take several model calls."""
        await self.wait_until_idle()

    async def current(self) -> NotesState | None:
        """Read the notes from their file, for use as a summary; None if they are missing, empty or unreadable."""
        if self._turn is None:
            return None
        try:
            notes = await trio.to_thread.run_sync(read_notes, self.path, self._writer.template)
        except OSError as exc:
            self._agent.report_failure(PURPOSE, exc)
            return None
        if notes is None or notes.is_empty:
            return None
        notes, _ = trim_notes(notes, self._writer.settings)
        return NotesState(text=notes.shown_text(), turn=self._turn, errors=notes.body(ERRORS))

    async def on_compacted(self, _agent: Agent, _compacted: Compacted) -> None:
        """After a compaction, restart the schedule: it measures growth from the new, smaller size of the context."""
        self._schedule = self._schedule.after_shrink(self._agent.meter.tokens(self._agent.conversation))

    async def handle(self, start: HelperStart) -> None:
        """Update the notes so that they cover the conversation in *start*; a failure becomes an event."""
        began, spending = trio.current_time(), UpdateCost(self._agent.model)
        try:
            notes, trimmed = await self._writer.update(self._agent, start, spending)
            schedule = self._schedule.after_success(spending.cost)
            record = NotesRecord(
                turn=start.turn,
                tokens=start.tokens,
                cost_usd=format(schedule.notes_usd, "f"),
                turns_usd=format(schedule.turns_usd, "f"),
            )
            self._agent.transcript.record(self._agent.conversation, record)
        except (*CALL_FAILURES, NotesUnusable, OSError) as exc:
            self._schedule = self._schedule.after_failure(spending.cost)
            self._agent.report_failure(PURPOSE, exc)
            return
        self._schedule, self._turn, self._output = schedule, start.turn, spending.output
        self._tokens = tokens_of(notes.shown_text())
        self._agent.emit(
            NotesUpdated(
                path=str(self.path),
                tokens=self._tokens,
                edits=spending.edits,
                trimmed=trimmed,
                seconds=round(trio.current_time() - began, 6),
                cost_usd=format(spending.cost, "f"),
            )
        )

    def _delay(self, tokens: int) -> Delay | None:
        """Return the condition that delays an update at a context size of *tokens*; None if an update is due."""
        agent, unknown = self._agent, 0
        if self._schedule.is_close(tokens):
            # The messages that would have to stay if the notes were used as a summary now.
            unknown = kept_size_after(agent.conversation.prefix, agent.turn - (self._turn or 0), estimate_block)
        # The helper reads the cache entries of the last reply.
        cached = min(tokens, agent.meter.cached(agent.conversation) or 0)
        fresh = tokens - cached + DIRECTIVE + self._tokens
        cost = agent.model.cost(Usage(input=fresh, read=cached, output=self._output))
        return self._schedule.delay(tokens, cost, unknown)
