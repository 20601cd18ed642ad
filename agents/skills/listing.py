"""What an agent is told of skills before it uses one: a line each, within a budget."""

from collections.abc import Sequence

from coterie.agents.prompt import render
from coterie.agents.skills.skill import Skill
from coterie.agents.tokens import TEXT_BYTES

SHOWN = 250
"""Characters of a description at most: enough to say what for, and when."""
LEAST = 20
"""Characters below which a description says nothing, and the name alone does better."""


def listing(skills: Sequence[Skill], budget: int) -> str:
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
