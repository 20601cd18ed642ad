"""Session notes (a summary of an agent's work, by sections) as a document, parsed from any text in their file.

No text that a person or a model wrote is lost. A malformed heading is corrected, duplicate sections are merged, and
text under an unknown heading stays where it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from coterie.memory.markdown import fence_after
from coterie.memory.notes.template import Template, fold_heading

KEPT = "<!-- kept by the session: written anew at each update -->"
END_OF_KEPT = "<!-- end of what the session keeps -->"
"""`KEPT` and `END_OF_KEPT` are the lines around the sections that the program itself writes, such as the tasks."""

_BROKEN = re.compile(r"[ \t]*(?:#{1,6}[ \t]*|\*\*|__)?(.*?)(?:\*\*|__)?[ \t]*:?[ \t]*#*[ \t]*")


@attrs.frozen(kw_only=True)
class NotesDocument:
    """Session notes of an agent: a template, and the text in each of its sections."""

    template: Template
    bodies: tuple[str, ...]
    """Text of each section, in the order of the sections in the template; empty if nothing was written there."""
    kept: str = ""
    """Sections that the program writes itself, such as team and tasks, as text; they follow all other sections."""

    @classmethod
    def parse(cls, text: str, template: Template) -> "NotesDocument":
        """Parse *text*, the content of a notes file, into the sections of *template*. Accepts any text."""
        lines, kept = _without_kept(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
        bodies: list[list[str]] = [[] for _ in template.sections]
        starts = _starts(lines, template)
        at = 0
        for number, line in enumerate(lines):
            if number in starts:
                at = starts[number]
                bodies[at] += [""] if bodies[at] and bodies[at][-1].strip() else []
            elif line.strip() not in template.sections[at].hint:
                bodies[at].append(line)
        return cls(template=template, bodies=tuple(map(_body, bodies)), kept=kept)

    @property
    def is_empty(self) -> bool:
        """True if no text was written into any section: there are only headings and the hints of the template."""
        return not any(self.bodies)

    def body(self, heading: str) -> str:
        """Return the text of the section *heading*; empty if nothing was written or there is no such section."""
        sections = zip(self.template.sections, self.bodies, strict=True)
        return next((body for section, body in sections if fold_heading(section.heading) == fold_heading(heading)), "")

    def with_kept(self, texts: Mapping[str, str]) -> "NotesDocument":
        """Return a copy in which *texts*, by heading, replace the program's own sections; empty ones are left out."""
        kept = "\n\n".join(f"# {heading}\n{text.strip()}" for heading, text in texts.items() if text.strip())
        lines = (line for line in kept.split("\n") if line.strip() not in (KEPT, END_OF_KEPT))
        return attrs.evolve(self, kept="\n".join(lines))

    def to_text(self) -> str:
        """Return the content of the notes file: all sections with headings and hints, then the program's sections."""
        sections = zip(self.template.sections, self.bodies, strict=True)
        parts = ["\n".join([*section.lines, *(["", body] if body else [])]).strip("\n") for section, body in sections]
        if self.kept:
            parts.append(f"{KEPT}\n{self.kept}\n{END_OF_KEPT}")
        return "\n\n".join(filter(None, parts)) + "\n"

    def shown_text(self) -> str:
        """Return the notes as a summary: only sections with text, without hints and the program's own sections."""
        sections = zip(self.template.sections, self.bodies, strict=True)
        return "\n\n".join(f"# {s.heading}\n{body}" if s.heading else body for s, body in sections if body)


def close_fences(body: str) -> str:
    """Return *body*, with a closing fence added to an unclosed code block, which would hide later section headings."""
    fence = None
    for line in body.split("\n"):
        fence = fence_after(line, fence)
    return body if fence is None else f"{body}\n{fence}"


def _body(lines: Sequence[str]) -> str:
    written = [number for number, line in enumerate(lines) if line.strip()]
    return close_fences("\n".join(lines[written[0] : written[-1] + 1])) if written else ""


def _without_kept(lines: Iterable[str]) -> tuple[list[str], str]:
    """Return the lines outside the two marker lines, and the text between them; all lines if a marker is missing."""
    rest: list[str] = []
    kept: list[str] = []
    between: list[str] | None = None
    for line in lines:
        mark = line.strip()
        if mark == KEPT:
            rest += between or []
            between = []
        elif mark == END_OF_KEPT:
            kept, between = (kept, None) if between is None else (between, None)
        else:
            (rest if between is None else between).append(line)
    return [*rest, *(between or [])], "\n".join(kept)


def _starts(lines: Sequence[str], template: Template) -> dict[int, int]:
    """Map the index of each of *lines* at which a section begins to the index of this section in *template*.

    A malformed heading, or else a hint of the template, counts only for a section without a correct heading.
    """
    whole = {f"# {section.heading}": index for index, section in enumerate(template.sections) if section.heading}
    starts = {number: whole[line.rstrip()] for number, line in enumerate(lines) if line.rstrip() in whole}
    missing = set(whole.values()) - set(starts.values())
    plain = set(_outside_fences(lines, starts))
    folded = {fold_heading(template.sections[index].heading): index for index in missing}
    headings = ((n, _BROKEN.fullmatch(lines[n])) for n in plain)
    names = {n: fold_heading(heading[1]) for n, heading in headings if heading}
    broken = {n: folded[name] for n, name in names.items() if name in folded}
    hints = {hint: index for index in missing - set(broken.values()) for hint in template.sections[index].hint}
    hinted = {n: hints[lines[n].strip()] for n in plain if lines[n].strip() in hints}
    return {**hinted, **broken, **starts}


def _outside_fences(lines: Sequence[str], starts: Mapping[int, int]) -> Iterable[int]:
    """Yield the indexes of *lines* outside code blocks; an index in *starts* (section headings) ends an open block."""
    fence = None
    for number, line in enumerate(lines):
        before = None if number in starts else fence
        fence = fence_after(line, before)
        if before is None and fence is None:
            yield number
