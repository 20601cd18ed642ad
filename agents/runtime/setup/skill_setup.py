"""Skills (stored instruction texts) of one agent: the list that its model gets, and the skills loaded at its start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.events.agent_events import Noticed
from coterie.agents.events.layer_events import SkillLoaded
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.agents.loop.model.catalog import Model
from coterie.agents.prompts import render
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles
from coterie.agents.runtime.setup.context_texts import can_load_skills, skill_listing_text
from coterie.agents.skills.skill_text import requested_skill, skill_block, skill_text
from coterie.agents.skills.store import Skill, Skills, load_skills
from coterie.agents.tools.skills.load_skill import SkillTool


@attrs.frozen(kw_only=True)
class AgentSkills:
    """Skills (stored instruction texts) that one agent can load. Created by `open_agent_skills`."""

    found: Skills
    tools: tuple[SkillTool, ...]
    """The tool Skill; empty without skills, or if the conversation began without it, because its tools never change."""
    listing: str
    """List of the skills for the model, shown before the task; empty if the agent can load no skill."""
    preloaded: Sequence[str]
    """Names of the skills that the agent definition demands to load at the start."""
    accepts_commands: bool
    """True for an agent without a parent: its messages come from the user and may load a skill, as in `/review`."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """Directories of all skills, in which the agent may read files."""
        return tuple(skill.directory for skill in self.found.by_name.values())

    def report_problems(self, agent: Agent) -> None:
        """Emit an event for each error in a skill file; only for the lead, because all agents load the same files."""
        for problem in self.found.problems if self.accepts_commands else ():
            if problem.severity == "error":
                agent.emit(Noticed(source=f"{problem.path}:{problem.line}", reason=problem.reason))

    async def preload(self, agent: Agent) -> list[str]:
        """Return the texts of the skills in `preloaded`, for the model; a missing or unreadable one causes an event."""
        found: list[Skill] = []
        for name in self.preloaded:
            if skill := self.found.by_name.get(name):
                found.append(skill)
            else:
                agent.emit(Noticed(source=f"skill {name}", reason=self.found.missing(name)))
        blocks = [block for skill in found if (block := await _load(agent, skill.used(), "definition"))]
        return [render("skills_preloaded", skills="\n\n".join(blocks))] if blocks else []

    async def load_requested(self, agent: Agent, text: str) -> list[str]:
        """Return the text of the skill that the user message *text* requests, as in `/review`, else no text."""
        asked = requested_skill(text, self.found) if self.accepts_commands else None
        if asked is None:
            return []
        skill, arguments = asked
        block = await _load(agent, skill.used(arguments), "user")
        return [render("skill_asked", name=skill.name, skill=block)] if block else []


def open_agent_skills(
    spec: AgentSpec, files: AgentFiles, definition: AgentDefinition | None, model: Model, begun: Prefix | None
) -> AgentSkills:
    """Load the skills for the agent of *spec*; none if they are switched off, and in a bare run (`--bare`).

    An existing conversation *begun* keeps its tools, with or without the tool Skill. Blocks on the disk.
    """
    settings = spec.settings.skills
    found = load_skills(spec.directory) if settings.enabled and not spec.is_bare else Skills()
    is_offered = bool(found.by_name) if begun is None else begun.has_tool(SkillTool.name)
    return AgentSkills(
        found=found,
        tools=(SkillTool(skills=found, emit=files.log.emit),) if is_offered else (),
        listing=skill_listing_text(found, spec.settings, model) if is_offered and can_load_skills(definition) else "",
        preloaded=() if definition is None else definition.skills,
        accepts_commands=not spec.parent_settings,
    )


async def _load(agent: Agent, used: UsedSkill, by: Literal["user", "definition"]) -> str:
    """Return the text of a skill for the model and record its use; emit an event and return "" if unreadable."""
    text = await trio.to_thread.run_sync(skill_text, used)
    if isinstance(text, FileProblem):
        agent.emit(Noticed(source=f"{text.path}:{text.line}", reason=text.reason))
        return ""
    agent.workspace.skills.record(used)
    agent.emit(SkillLoaded(name=used.name, by=by, path=used.file, characters=len(text)))
    return skill_block(used, text)
