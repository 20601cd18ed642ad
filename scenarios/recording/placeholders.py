"""Replaces paths and ids of a recorded session by placeholders."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

SCRATCH = r"scratch directory: (.+)"
"""How an agent is told where it shares files with others."""
_IDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b"), "([0-9a-f-]+)"),
    (re.compile(r"\btoolu_\w+"), r"(toolu_\w+)"),
)
"""Messages and approvals, sessions, calls; each with what finds another of its kind."""
_ANY_ID = re.compile("|".join(pattern.pattern for pattern, _ in _IDS))
_CONTEXTS = (4, 8, 16, 32, 64)
"""Characters before an id by which it is found; the fewest that find it."""
_OWN = re.compile(r"(?<![\w./~-])/(?:home|Users|root|tmp|var|mnt|media|srv|run)/[\w./+@-]*\w")
"""Paths that another machine need not have."""


@attrs.define(eq=False, kw_only=True)
class Placeholders:
    """Cleans the texts of one recording, and remembers what it could not."""

    project: Path
    session: Path
    """The directory of the session."""
    home: Path
    """Of the user."""
    strange: dict[str, None] = attrs.field(factory=dict)
    """What is left in texts and is of this machine or session."""

    def mask_text(self, text: str, heard: Sequence[str] = (), directory: Path | None = None) -> str:
        """*text* for any machine; *heard* is what an agent that works in *directory* could know it from.

        What is found there becomes a slot of the script, and a `{{` of the text is written as one.
        """
        text = text.replace("{{", "{{open}}")
        scratch = str(self.session / "scratch")
        if scratch in text and any(re.search(SCRATCH, each) for each in heard):
            text = text.replace(scratch, "{{/" + SCRATCH + "/}}")
        text = self._plain(text, directory)
        for pattern, group in _IDS:
            text = pattern.sub(lambda found, group=group: self._id(found[0], group, heard), text)  # type: ignore[misc]
        return text

    def mask_plain(self, text: str) -> str:
        """*text*, which is in no script, for any machine."""
        text = self._plain(text, None)
        for found in _ANY_ID.findall(text):
            self.strange[found] = None
        return text

    def mask_value(self, value: Any, heard: Sequence[str] = (), directory: Path | None = None) -> Any:
        """A JSON value with all of its strings cleaned; its keys are left as they are."""
        if isinstance(value, str):
            return self.mask_text(value, heard, directory)
        if isinstance(value, dict):
            return {key: self.mask_value(each, heard, directory) for key, each in value.items()}
        if isinstance(value, list):
            return [self.mask_value(each, heard, directory) for each in value]
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

    def _id(self, id_: str, group: str, heard: Sequence[str]) -> str:
        for context in _contexts(id_, heard):
            expression = re.escape(context) + group
            if "}}" not in expression and _find(expression, heard) == id_:
                return "{{/" + expression + "/}}"
        self.strange[id_] = None
        return id_


def _contexts(id_: str, heard: Sequence[str]) -> Iterator[str]:
    """What stands before *id_*, on its line, where it was heard last; shorter ones first."""
    text = next((each for each in reversed(heard) if id_ in each), None)
    if text is None:
        return
    before = _ANY_ID.split(text[: text.rindex(id_)].rpartition("\n")[2])[-1]
    for length in _CONTEXTS:
        if context := before[-length:].lstrip():
            yield context


def _find(expression: str, heard: Sequence[str]) -> str | None:
    """What a slot with this *expression* would be filled with."""
    for text in reversed(heard):
        if found := re.findall(expression, text):
            return str(found[-1])
    return None
