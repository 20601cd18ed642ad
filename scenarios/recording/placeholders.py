"""Replaces paths and ids of a recorded session by placeholders."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

SCRATCH = r"scratch directory: (.+)"
"""Text by which an agent is told its scratch directory."""
_IDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\btoolu_\w+"), r"(toolu_\w+)"),
)
"""Patterns of message and approval ids, session ids and call ids, each with a group that matches any such id."""
_ANY_ID = re.compile("|".join(pattern.pattern for pattern, _ in _IDS))
_CONTEXTS = (4, 8, 16, 32, 64)
"""Lengths of the context before an id that a slot searches for; the shortest one that finds the id is used."""
_OWN = re.compile(r"(?<![\w./~-])/(?:home|Users|root|tmp|var|mnt|media|srv|run)/[\w./+@-]*\w")
"""Absolute paths that may not exist on another machine."""


@attrs.define(eq=False, kw_only=True)
class Placeholders:
    """Replaces paths and ids in the texts of one recording, and collects what it could not replace."""

    project: Path
    session: Path
    """Directory of the session."""
    home: Path
    """Home directory of the user."""
    strange: dict[str, None] = attrs.field(factory=dict)
    """Remaining texts that are specific to this machine or session."""

    def mask_text(self, text: str, inputs: Sequence[str] = (), directory: Path | None = None) -> str:
        """Return *text* of an agent in *directory* for any machine; *inputs* are the texts that the agent has received.

        Ids that occur in *inputs* become slots of the script, and `{{` in the text is escaped.
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
        """Return *text*, which is not part of a script, for any machine."""
        text = self._plain(text, None)
        for found in _ANY_ID.findall(text):
            self.strange[found] = None
        return text

    def mask_value(self, value: Any, inputs: Sequence[str] = (), directory: Path | None = None) -> Any:
        """Apply `mask_text` to all strings of a JSON value, but not to its keys."""
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
    """Yield the text before *id_* on its line, where it was received last; shorter ones first."""
    text = next((each for each in reversed(inputs) if id_ in each), None)
    if text is None:
        return
    before = _ANY_ID.split(text[: text.rindex(id_)].rpartition("\n")[2])[-1]
    for length in _CONTEXTS:
        if context := before[-length:].lstrip():
            yield context
