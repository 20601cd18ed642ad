"""Skills of one agent: the listing it receives and the skills it begins with."""

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
    """Skills of one agent. Created by `open_agent_skills`."""

    found: Skills
    tools: tuple[SkillTool, ...]
    """Tool that loads skills; none in a conversation that began without skills, because its tools never change."""
    listing: str
    """Text about the skills before the task; empty if there are none."""
    preloaded: Sequence[str]
    """Names of the skills that the definition loads at the start."""
    accepts_commands: bool
    """True if the user writes the messages to the agent, so that a message may load a skill."""

    @property
    def directories(self) -> tuple[Path, ...]:
        """Directories of the skills, which the agent may read."""
        return tuple(skill.directory for skill in self.found.by_name.values())

    def report_problems(self, agent: Agent) -> None:
        """Emit the problems of skill files; only for the lead, because all agents load the same files."""
        for problem in self.found.problems if self.accepts_commands else ():
            if problem.severity == "error":
                agent.emit(Noticed(source=f"{problem.path}:{problem.line}", reason=problem.reason))

    async def preload(self, agent: Agent) -> list[str]:
        """Return the texts of the skills that the definition loads at the start; a missing skill is an event."""
        found: list[Skill] = []
        for name in self.preloaded:
            if skill := self.found.by_name.get(name):
                found.append(skill)
            else:
                agent.emit(Noticed(source=f"skill {name}", reason=self.found.missing(name)))
        blocks = [block for skill in found if (block := await _load(agent, skill.used(), "definition"))]
        return [render("skills_preloaded", skills="\n\n".join(blocks))] if blocks else []

    async def load_requested(self, agent: Agent, text: str) -> list[str]:
        """Return the text of the skill that the user text *text* requests; empty if it requests none."""
        asked = requested_skill(text, self.found) if self.accepts_commands else None
        if asked is None:
            return []
        skill, arguments = asked
        block = await _load(agent, skill.used(arguments), "user")
        return [render("skill_asked", name=skill.name, skill=block)] if block else []


def open_agent_skills(
    spec: AgentSpec, files: AgentFiles, definition: AgentDefinition | None, model: Model, begun: Prefix | None
) -> AgentSkills:
    """Load the skills of the agent of *spec*; none for a bare run.

    A conversation that exists, with the prefix *begun*, keeps its tools. Blocks on the disk. Raises `ConfigInvalid`.
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
    """Return the text of a skill for the model and record its use; empty, with an event, if the file cannot be read."""
    text = await trio.to_thread.run_sync(skill_text, used)
    if isinstance(text, FileProblem):
        agent.emit(Noticed(source=f"{text.path}:{text.line}", reason=text.reason))
        return ""
    agent.workspace.skills.record(used)
    agent.emit(SkillLoaded(name=used.name, by=by, path=used.file, characters=len(text)))
    return skill_block(used, text)
