"""Skill texts for the model: the listing of all skills, and the text of a used one."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from coterie.agents.definitions.definition_files import FileProblem, read_text
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.agents.prompts import render
from coterie.agents.skills.skill import Skill
from coterie.agents.skills.store import Skills
from coterie.memory.front_matter.front_matter import parse_front_matter

ARGUMENTS = "$ARGUMENTS"
PLACE = "${CLAUDE_SKILL_DIR}"
"""The skill's directory, as people write it."""
_ASKED = re.compile(r"/(?P<name>[a-z0-9-]{1,64})(?:\s+(?P<arguments>.*))?", re.DOTALL)


def skill_text(used: UsedSkill) -> str | FileProblem:
    """The text of a skill that is used, without its front matter. Blocks on the disk.

    A file that has become a link since it was found is not read: nobody has looked where that leads.
    """
    file = Path(used.file)
    if os.path.realpath(file) != used.file:
        return FileProblem(path=file, line=1, severity="error", reason="is not where it was found any more")
    text = read_text(file)
    if isinstance(text, FileProblem):
        return text
    body = parse_front_matter(text).body.strip().replace(PLACE, str(file.parent))
    if ARGUMENTS in body:
        return body.replace(ARGUMENTS, used.arguments)
    return f"{body}\n\nArguments: {used.arguments}" if used.arguments else body


def skill_block(used: UsedSkill, text: str) -> str:
    """*text*, which the skill says, as the model reads it."""
    place = str(Path(used.file).parent)
    return render("skill", name=quoteattr(used.name), directory=quoteattr(place), text=text)


def requested_skill(words: str, skills: Skills) -> tuple[Skill, str] | None:
    """The skill that the user's *words* start, and its arguments; None if they are words like any others."""
    asked = _ASKED.fullmatch(words.strip())
    skill = None if asked is None else skills.by_name.get(asked["name"])
    if asked is None or skill is None or not skill.is_for_user:
        return None
    return skill, (asked["arguments"] or "").strip()


SHOWN = 250
"""Characters of a description at most: enough to say what for, and when."""
LEAST = 20
"""Characters below which a description says nothing, and the name alone does better."""


def skill_listing(skills: Sequence[Skill], budget: int) -> str:
    """The *skills* in at most *budget* tokens, the first ones if there is no room for all; empty without any.

    The same skills and the same budget give the same text.
    """
    if not skills:
        return ""
    room = budget * TEXT_BYTES - len(render("skills", skills="").encode())
    lines = _lines(skills, _longest(skills, room))
    kept = _fitting(lines, room)
    if more := len(lines) - len(kept):
        kept.append(f"- ... and {more} more that there is no room for; the user knows their names")
    return render("skills", skills="\n".join(kept))


def _longest(skills: Sequence[Skill], room: int) -> int:
    """How many characters of each description there is room for; 0 for none."""
    low, high = 0, SHOWN
    while low < high:
        middle = (low + high + 1) // 2
        if _size(_lines(skills, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return low if low >= LEAST else 0


def _lines(skills: Sequence[Skill], longest: int) -> list[str]:
    return [
        f"- {skill.name}: {_short(skill.description, longest)}" if longest else f"- {skill.name}" for skill in skills
    ]


def _short(description: str, longest: int) -> str:
    # Strangers write it: it must not end its frame and speak for the user.
    text = description.replace("</skills", "<\\/skills")
    return text if len(text) <= longest else f"{text[: longest - 3].rstrip()}..."


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
