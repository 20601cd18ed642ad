"""Layer 3: one update of the session notes, by a helper that may edit only the notes file."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection, section_text
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.reply import Reply
from coterie.agents.prompts import render
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.tool import Tool, Workspace
from coterie.errors import ConfigInvalid
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import NotesDocument
from coterie.memory.notes.notes_file import begin_update, end_update, read_file
from coterie.memory.notes.template import Template, default_template, fill_slots, find_slots

PURPOSE = "notes"
ROUNDS = 2
"""Replies whose edits are executed: the second one can correct failed edits of the first."""
_REQUIRED = ("path", "notes")
"""Slots that a prompt of the user must have, because the model needs them to edit the notes."""


@attrs.define(eq=False)
class UpdateCost:
    """Cost and edits of one helper so far."""

    _model: Model
    cost: Decimal = Decimal(0)
    output: int = 0
    """Output tokens."""
    replies: int = 0
    edits: int = 0
    failure: str | None = None
    """Error of the last edit; None if it succeeded."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; return True if all its edits succeeded or it was the last reply."""
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
    """Writer of the notes file of one agent."""

    path: Path
    """Path of the notes file, with links of its directory resolved."""
    template: Template
    prompt: str | None
    """The user's own prompt with `{{slots}}`; None for the built-in prompt."""
    settings: NotesSettings
    facts: Mapping[str, str]
    """Values for the slots of the user's own prompt."""
    pinned_sections: Sequence[PinnedSection]

    async def update(self, agent: Agent, start: HelperStart, spending: UpdateCost) -> tuple[NotesDocument, list[str]]:
        """Let a helper update the notes to the state of *start*, then write the pinned sections.

        Returns the notes, and the headings of the sections that were truncated to their limit. Each edit and the end of
        the update replace the whole file; cancellation keeps the edits made so far. Raises `NotesUnusable` and
        `OSError`, and as `run_helper` does.
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
            raise NotesUnusable(f"an edit failed: {spending.failure}")
        if not spending.edits:
            raise NotesUnusable(f"the model made no edit and stopped with {reply.stop_reason}")
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
        """Deny all calls but edits of the notes file: the `Denial` of the helper."""
        if tool.name == Edit.name and list(tool.paths_affected(arguments, workspace)) == [self.path]:
            return None
        return f"Only Edit can be used here, and only on {self.path}."


def load_writer(
    agent: str, project: Path, scratch: Path, settings: NotesSettings, pinned: Sequence[PinnedSection] = ()
) -> NotesWriter:
    """Create the writer of *agent*'s notes in the directory *scratch*.

    The notes contain the text of the *pinned* sections verbatim. Blocks on the disk. Raises `ConfigInvalid` for an
    unusable template or prompt file.
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
                str(path), f"has no slot {{{{{name}}}}}, which the model needs to edit the notes; add it"
            )
    return text


def _user_text(path: Path) -> str:
    try:
        content = read_file(path, follow=True)
        if content is None:
            raise ConfigInvalid(
                str(path),
                "does not exist, but a setting in [layers.notes] names it; create the file or change the setting",
            )
        return content.decode()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigInvalid(str(path), f"cannot be read: {reason}") from exc
