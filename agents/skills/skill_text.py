"""Texts about skills (stored instructions) for the model: the list of all skills, and the text of a loaded skill."""

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from xml.sax.saxutils import quoteattr

from coterie.agents.definitions.definition_files import FileProblem, read_text
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.agents.prompts import render
from coterie.agents.skills.store import Skill, Skills
from coterie.memory.front_matter.front_matter import parse_front_matter

ARGUMENTS = "$ARGUMENTS"
PLACE = "${CLAUDE_SKILL_DIR}"
"""Placeholder in the text of a skill, which is replaced by the directory of the skill's file."""

_REQUEST = re.compile(r"/(?P<name>[a-z0-9-]{1,64})(?:\s+(?P<arguments>.*))?", re.DOTALL)

SHOWN = 250
"""Maximum number of characters of a skill's description in the list, which is enough to state its purpose."""
LEAST = 20
"""Minimum useful number of characters of a description; if less fits into the list, it contains only names."""


def skill_text(used: UsedSkill) -> str | FileProblem:
    """Return the text of the skill *used*, with its arguments inserted, or a problem. Blocks on the disk.

    A file that became a link after the skills were loaded is a problem, because its target was not checked.
    """
    file = Path(used.file)
    if os.path.realpath(file) != used.file:
        return FileProblem(path=file, reason="the file has moved since the skills were loaded; start a new session")
    text = read_text(file)
    if isinstance(text, FileProblem):
        return text
    body = parse_front_matter(text).body.strip().replace(PLACE, str(file.parent))
    if ARGUMENTS in body:
        return body.replace(ARGUMENTS, used.arguments)
    return f"{body}\n\nArguments: {used.arguments}" if used.arguments else body


def skill_block(used: UsedSkill, text: str) -> str:
    """Return *text*, the text of the skill *used*, in XML tags with its name and directory, for the model."""
    place = str(Path(used.file).parent)
    return render("skill", name=quoteattr(used.name), directory=quoteattr(place), text=text)


def requested_skill(message: str, skills: Skills) -> tuple[Skill, str] | None:
    """Return the skill and arguments that *message* requests as `/name arguments`; None if it requests no skill."""
    match = _REQUEST.fullmatch(message.strip())
    skill = None if match is None else skills.by_name.get(match["name"])
    if match is None or skill is None or not skill.is_for_user:
        return None
    return skill, (match["arguments"] or "").strip()


def skill_listing(skills: Sequence[Skill], budget: int) -> str:
    """Return the list of *skills* for the model, cut to about *budget* tokens; empty without skills.

    Long descriptions are cut, then omitted, then the last names are omitted. Equal arguments give an equal text.
    """
    if not skills:
        return ""
    room = budget * TEXT_BYTES - len(render("skills", skills="").encode())
    lengths = range(LEAST, SHOWN + 1)
    fitting = bisect_right(lengths, room, key=lambda length: _sizes(_described(skills, length))[-1])
    lines = _described(skills, lengths[fitting - 1]) if fitting else [f"- {skill.name}" for skill in skills]
    kept = lines[: bisect_right(_sizes(lines), room)]
    if more := len(lines) - len(kept):
        kept.append(f"- ... and {more} more skills that do not fit into this list; the user knows their names")
    return render("skills", skills="\n".join(kept))


def _described(skills: Sequence[Skill], longest: int) -> list[str]:
    return [f"- {skill.name}: {_short(skill.description, longest)}" for skill in skills]


def _short(description: str, longest: int) -> str:
    # Skills may come from untrusted authors: the text must not close its frame and pose as the user.
    text = description.replace("</skills", "<\\/skills")
    return text if len(text) <= longest else f"{text[: longest - 3].rstrip()}..."


def _sizes(lines: Sequence[str]) -> list[int]:
    """Return, for each of *lines*, the number of bytes from the start of the first line to the end of this line."""
    return list(accumulate(len(line.encode()) + 1 for line in lines))
