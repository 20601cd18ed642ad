"""Replaces paths and ids in the texts of a recorded session, so that the recorded scenario runs on any machine."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

SCRATCH = r"scratch directory: (.+)"
"""Pattern of the text in the agents' prompt that names their scratch directory (directory for temporary files)."""
_IDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\btoolu_\w+"), r"(toolu_\w+)"),
)
"""Patterns of the ids of messages, approvals, sessions and tool calls, each with a group for any id of its kind."""
_ANY_ID = re.compile("|".join(pattern.pattern for pattern, _ in _IDS))
_CONTEXTS = (4, 8, 16, 32, 64)
"""Possible lengths of the text before an id that a slot `{{/expression/}}` finds; the shortest that works is used."""
_OWN = re.compile(r"(?<![\w./~-])/(?:home|Users|root|tmp|var|mnt|media|srv|run)/[\w./+@-]*\w")
"""Pattern of absolute paths that may not exist on another machine, such as `/home/me/notes.txt`."""


@attrs.define(eq=False, kw_only=True)
class Placeholders:
    """Replaces paths and ids in the texts of one recorded session, and collects those that it cannot replace."""

    project: Path
    session: Path
    """Directory with the files of the recorded session."""
    home: Path
    """Home directory of the user; `~` replaces it in recorded texts."""
    strange: dict[str, None] = attrs.field(factory=dict)
    """Paths, ids and other parts that stay specific to this machine or session, as keys in order of discovery."""

    def mask_text(self, text: str, inputs: Sequence[str] = (), directory: Path | None = None) -> str:
        """Return *text*, recorded from an agent that worked in *directory*, with paths and ids usable on any machine.

        An id that occurs in *inputs*, the texts that the agent had received, becomes a slot `{{/expression/}}`. A run
        fills the slot with the id that the agent receives then. A literal `{{` in *text* is escaped.
        """
        text = text.replace("{{", "{{open}}")
        scratch = str(self.session / "scratch")
        if scratch in text and any(re.search(SCRATCH, each) for each in inputs):
            text = text.replace(scratch, "{{/" + SCRATCH + "/}}")
        text = self._plain(text, directory)
        for pattern, group in _IDS:
            text = pattern.sub(lambda found, group=group: self._id(found[0], group, inputs), text)  # type: ignore[misc]
        return text

    def mask_plain(self, text: str) -> str:
        """Return *text*, such as the task, with paths usable on any machine; ids stay and are added to `strange`."""
        text = self._plain(text, None)
        for found in _ANY_ID.findall(text):
            self.strange[found] = None
        return text

    def mask_value(self, value: Any, inputs: Sequence[str] = (), directory: Path | None = None) -> Any:
        """Return the JSON value *value* with `mask_text` applied to all strings in it, except the keys of objects."""
        if isinstance(value, str):
            return self.mask_text(value, inputs, directory)
        if isinstance(value, dict):
            return {key: self.mask_value(each, inputs, directory) for key, each in value.items()}
        if isinstance(value, list):
            return [self.mask_value(each, inputs, directory) for each in value]
        return value

    def _plain(self, text: str, directory: Path | None) -> str:
        for root in filter(None, (directory, self.project)):
            text = re.sub(rf"(?<![\w.]){re.escape(str(root))}/(?=[\w.@-])", "", text)
            text = re.sub(rf"(?<![\w.]){re.escape(str(root))}(?![\w.-])", ".", text)
        text = text.replace(str(self.session), "~session")
        text = re.sub(rf"(?<![\w.]){re.escape(str(self.home))}(?=/)", "~", text)
        for found in (*_OWN.findall(text), *re.findall(r"~session[\w./-]*|(?<!\w)~/[\w./+@-]+", text)):
            self.strange[found] = None
        return text

    def _id(self, id_: str, group: str, inputs: Sequence[str]) -> str:
        for context in _contexts(id_, inputs):
            expression = re.escape(context) + group
            values = (found[-1] for text in reversed(inputs) if (found := re.findall(expression, text)))
            if "}}" not in expression and next(values, None) == id_:
                return "{{/" + expression + "/}}"
        self.strange[id_] = None
        return id_


def _contexts(id_: str, inputs: Sequence[str]) -> Iterator[str]:
    """Yield ever longer texts before *id_* on its line, in the last of *inputs* with this id; nothing if none has."""
    text = next((each for each in reversed(inputs) if id_ in each), None)
    if text is None:
        return
    before = _ANY_ID.split(text[: text.rindex(id_)].rpartition("\n")[2])[-1]
    for length in _CONTEXTS:
        if context := before[-length:].lstrip():
            yield context
