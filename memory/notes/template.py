"""Template of session notes (a summary of an agent's work): headings of sections, each with a hint for the writer."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.memory.errors import NotesUnusable

DEFAULT = Path(__file__).with_name("template.md")
ERRORS = "Errors & Corrections"
WORKLOG = "Worklog"

_HEADING = re.compile(r"#[ \t]+(\S.*)")
_SLOT = re.compile(r"\{\{[ \t]*(.*?)[ \t]*\}\}")


@attrs.frozen(kw_only=True)
class TemplateSection:
    """A section of the notes template: its heading, and a hint about the text that belongs there."""

    heading: str
    """Heading of the section; empty for the part above the first heading."""
    hint: tuple[str, ...] = ()
    """Lines of the template below the heading, which explain the section."""

    @property
    def lines(self) -> list[str]:
        """Lines of the section in a notes file in which nothing was written yet: heading and hint."""
        return [*([f"# {self.heading}"] if self.heading else []), *self.hint]


@attrs.frozen(kw_only=True)
class Template:
    """Template of session notes: its sections in order; the first is the part above the first heading."""

    sections: tuple[TemplateSection, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Parse *text*, a Markdown template. Raises `NotesUnusable` if it has no headings, or two equal ones."""
        sections: list[tuple[str, list[str]]] = [("", [])]
        for line in text.splitlines():
            if heading := _HEADING.fullmatch(line.rstrip()):
                sections.append((heading.group(1), []))
            elif line.strip():
                sections[-1][1].append(line.strip())
        names = [fold_heading(heading) for heading, _ in sections]
        if len(names) == 1:
            raise NotesUnusable(f"the notes template has no section; add a heading line such as '# {WORKLOG}'")
        if twice := [heading for heading, _ in sections if names.count(fold_heading(heading)) > 1]:
            raise NotesUnusable(f"the notes template has the section {twice[0]!r} twice; rename or delete one of them")
        return cls(sections=tuple(TemplateSection(heading=name, hint=tuple(hint)) for name, hint in sections))


def fold_heading(heading: str) -> str:
    """Return *heading* in a form for comparisons: lower case, single spaces, and "and" for `&`."""
    return " ".join(heading.casefold().replace("&", " and ").split())


@functools.cache
def default_template() -> Template:
    """Return the built-in template of session notes, parsed from `template.md`."""
    return Template.parse(DEFAULT.read_text(encoding="utf-8"))


def find_slots(text: str) -> set[str]:
    """Return the names of the slots in *text*, such as `path` for `{{path}}`."""
    return {slot.group(1) for slot in _SLOT.finditer(text)}


def fill_slots(text: str, facts: Mapping[str, str]) -> str:
    """Return *text* with each slot `{{name}}` replaced by `facts[name]`; slots in inserted texts are not replaced.

    Raises `NotesUnusable` for a slot with a name that is not in *facts*.
    """
    if unknown := sorted(find_slots(text) - facts.keys()):
        known = ", ".join(f"{{{{{name}}}}}" for name in sorted(facts))
        raise NotesUnusable(f"the text has an unknown slot {{{{{unknown[0]}}}}}; use one of {known}")
    return _SLOT.sub(lambda slot: facts[slot.group(1)], text)
