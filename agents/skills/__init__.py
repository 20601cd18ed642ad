"""Skills: instructions for work that comes up again, listed cheaply and loaded when they are used."""

from coterie.agents.skills.listing import listing
from coterie.agents.skills.reading import read_skill
from coterie.agents.skills.skill import Skill, SkillScope
from coterie.agents.skills.store import Skills, load_skill_path, load_skills
from coterie.agents.skills.words import asked_skill, skill_block, skill_text

__all__ = [
    "Skill",
    "SkillScope",
    "Skills",
    "asked_skill",
    "listing",
    "load_skill_path",
    "load_skills",
    "read_skill",
    "skill_block",
    "skill_text",
]
