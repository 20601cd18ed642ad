"""What a skill says when it is used: the text of its file as it is then, with the arguments in their place."""

import os
import re
from pathlib import Path
from xml.sax.saxutils import quoteattr

from coterie.agents.conversation.records import UsedSkill
from coterie.agents.definitions.problem import Problem
from coterie.agents.definitions.search import read_text
from coterie.agents.prompt import render
from coterie.agents.skills.skill import Skill
from coterie.agents.skills.store import Skills
from coterie.memory.front_matter import read_front_matter

ARGUMENTS = "$ARGUMENTS"
PLACE = "${CLAUDE_SKILL_DIR}"
"""The skill's directory, as people write it."""
_ASKED = re.compile(r"/(?P<name>[a-z0-9-]{1,64})(?:\s+(?P<arguments>.*))?", re.DOTALL)


def skill_text(used: UsedSkill) -> str | Problem:
    """The text of a skill that is used, without its front matter. Blocks on the disk.

    A file that has become a link since it was found is not read: nobody has looked where that leads.
    """
    file = Path(used.file)
    if os.path.realpath(file) != used.file:
        return Problem(path=file, line=1, severity="error", reason="is not where it was found any more")
    text = read_text(file)
    if isinstance(text, Problem):
        return text
    body = read_front_matter(text).body.strip().replace(PLACE, str(file.parent))
    if ARGUMENTS in body:
        return body.replace(ARGUMENTS, used.arguments)
    return f"{body}\n\nArguments: {used.arguments}" if used.arguments else body


def skill_block(used: UsedSkill, text: str) -> str:
    """*text*, which the skill says, as the model reads it."""
    place = str(Path(used.file).parent)
    return render("skill", name=quoteattr(used.name), directory=quoteattr(place), text=text)


def asked_skill(words: str, skills: Skills) -> tuple[Skill, str] | None:
    """The skill that the user's *words* start, and its arguments; None if they are words like any others."""
    asked = _ASKED.fullmatch(words.strip())
    skill = None if asked is None else skills.by_name.get(asked["name"])
    if asked is None or skill is None or not skill.is_for_user:
        return None
    return skill, (asked["arguments"] or "").strip()
