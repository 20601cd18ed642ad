"""Layer 3: one update of the session notes by a helper that may edit only their file."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.reply import Reply
from coterie.agents.prompts import render
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.tool import Denial, Tool, Workspace
from coterie.errors import ConfigInvalid
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import NotesDocument
from coterie.memory.notes.notes_file import begin_update, end_update, read_file
from coterie.memory.notes.template import Template, default_template, fill_slots, find_slots

PURPOSE = "notes"
ROUNDS = 2
"""Replies whose edits are made: the second is for those that did not fit."""
_NEEDED = ("path", "notes")
"""Slots without which a prompt cannot say what to edit."""


@attrs.define(eq=False)
class UpdateCost:
    """What a helper has done so far, and what that cost."""

    _model: Model
    cost: Decimal = Decimal(0)
    output: int = 0
    """Tokens."""
    replies: int = 0
    edits: int = 0
    failure: str | None = None
    """Of the last edit that was asked for, if it could not be made."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; true once its edits were made, and when there is no use in another."""
        self.replies += 1
        self.cost += self._model.cost(reply.usage)
        self.output += reply.usage.output
        edits = [answer.result for answer in answers if answer.call["name"] == Edit.name]
        failed = [result for result in edits if result.is_error]
        self.edits += len(edits) - len(failed)
        if edits:
            self.failure = failed[-1].text.partition("\n")[0] if len(failed) == len(edits) else None
        return self.replies == ROUNDS or (bool(edits) and not failed)

    def check(self, reply: Reply) -> None:
        """Raise `NotesUnusable` unless *reply*, the last, leaves the notes as the helper wanted them."""
        if self.failure is not None:
            raise NotesUnusable(f"an edit could not be made: {self.failure}")
        if not self.edits:
            raise NotesUnusable(f"the model made no edit, and ended with {reply.stop_reason}")


@attrs.frozen(kw_only=True)
class NotesUpdate:
    """Notes that are up to date."""

    notes: NotesDocument
    trimmed: list[str]
    """Headings of sections that were over their limit."""


@attrs.frozen(kw_only=True)
class NotesWriter:
    """Writes the notes of one agent."""

    path: Path
    """With the links of its directory followed."""
    template: Template
    prompt: str | None
    """With `{{slots}}`; None for ours."""
    settings: NotesSettings
    facts: Mapping[str, str]
    """What the slots of the user's own prompt stand for."""
    pinned_sections: Sequence[PinnedSection]

    async def update(self, agent: Agent, start: HelperStart, spending: UpdateCost) -> NotesUpdate:
        """Let a helper bring the notes up to *start*; what we keep in them is as it is when it has ended.

        The file is replaced whole, at the end and by each edit; cancellation leaves those that were made. Raises
        `NotesUnusable` and `OSError`, and as `run_helper` does.
        """
        notes, content = await trio.to_thread.run_sync(begin_update, self.path, self.template)
        reply = await run_helper(
            agent,
            self._directive(notes),
            PURPOSE,
            max_turns=ROUNDS + 1,
            denial=edit_only_permission(self.path),
            start=attrs.evolve(start, known={self.path: content}),
            until=spending.count_reply,
        )
        spending.check(reply)
        kept = {standing.heading: await _text(standing, agent) for standing in self.pinned_sections}
        end = partial(end_update, self.path, self.template, self.settings, kept)
        updated, trimmed = await trio.to_thread.run_sync(end)
        return NotesUpdate(notes=updated, trimmed=trimmed)

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


def edit_only_permission(path: Path) -> Denial:
    """The `Denial` of a helper that may change *path*, and nothing else."""

    async def denial(tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        if tool.name == Edit.name and list(tool.paths_affected(arguments, workspace)) == [path]:
            return None
        return f"Nothing can be used here but Edit, and only on {path}."

    return denial


def load_writer(
    agent: str, project: Path, scratch: Path, settings: NotesSettings, pinned: Sequence[PinnedSection] = ()
) -> NotesWriter:
    """The writer of the notes of *agent* in *scratch*.

    The text of the *pinned* sections is in the notes word for word. Blocks on the disk. Raises `ConfigInvalid` for a
    file that cannot be used.
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
        fill_slots(text, {**facts, **dict.fromkeys((*_NEEDED, "section", "total"), "")})
    except NotesUnusable as exc:
        raise ConfigInvalid(str(path), f"{exc}") from exc
    for name in _NEEDED:
        if name not in find_slots(text):
            raise ConfigInvalid(str(path), f"has no slot {{{{{name}}}}}, without which the model cannot edit the notes")
    return text


def _user_text(path: Path) -> str:
    try:
        content = read_file(path, follow=True)
        if content is None:
            raise ConfigInvalid(str(path), "is not there; it is named in the settings of session notes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigInvalid(str(path), f"cannot be read: {reason}") from exc


async def _text(standing: PinnedSection, agent: Agent) -> str:
    try:
        return await standing.text(agent)
    except OSError as exc:
        agent.emit(LayerFailed(layer=PURPOSE, reason=f"{standing.heading}: {exc}"))
        return ""
