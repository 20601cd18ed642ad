"""Skill texts for the model: the list of all skills, and the text of a loaded skill."""

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
"""Placeholder in skill files for the directory of the skill."""

_REQUEST = re.compile(r"/(?P<name>[a-z0-9-]{1,64})(?:\s+(?P<arguments>.*))?", re.DOTALL)

SHOWN = 250
"""Maximum length of a description in the list, in characters: enough for its purpose."""
LEAST = 20
"""Minimum useful length of a description, in characters; below, only the name is listed."""


def skill_text(used: UsedSkill) -> str | FileProblem:
    """Return the text of a skill, without its front matter. Blocks on the disk.

    A file that has become a link since the skill was loaded is not read, because the target was not checked.
    """
    file = Path(used.file)
    if os.path.realpath(file) != used.file:
        return FileProblem(path=file, reason="has moved since the skills were loaded")
    text = read_text(file)
    if isinstance(text, FileProblem):
        return text
    body = parse_front_matter(text).body.strip().replace(PLACE, str(file.parent))
    if ARGUMENTS in body:
        return body.replace(ARGUMENTS, used.arguments)
    return f"{body}\n\nArguments: {used.arguments}" if used.arguments else body


def skill_block(used: UsedSkill, text: str) -> str:
    """Wrap *text* of a skill in its frame for the model."""
    place = str(Path(used.file).parent)
    return render("skill", name=quoteattr(used.name), directory=quoteattr(place), text=text)


def requested_skill(message: str, skills: Skills) -> tuple[Skill, str] | None:
    """Return the skill that the user text *message* requests, and its arguments; None if it requests none."""
    match = _REQUEST.fullmatch(message.strip())
    skill = None if match is None else skills.by_name.get(match["name"])
    if match is None or skill is None or not skill.is_for_user:
        return None
    return skill, (match["arguments"] or "").strip()


def skill_listing(skills: Sequence[Skill], budget: int) -> str:
    """List *skills* in at most *budget* tokens, only the first ones if necessary; empty without skills.

    The same skills and the same budget give the same text.
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
    """Return the size of the text up to the end of each line, in bytes."""
    return list(accumulate(len(line.encode()) + 1 for line in lines))
