"""An agent's facts put together: from settings, its definition, instruction files, and the model it talks to."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import msgspec

from coterie.agents.conversation import Conversation, KeyHeader, text_block
from coterie.agents.definitions import Definition
from coterie.agents.definitions.tool_list import bare_name
from coterie.agents.layers.clearing import api_clearing
from coterie.agents.models import Model, known_models
from coterie.agents.permissions import Permissions, RoleLimit, Rule
from coterie.agents.pipeline import LayerSettings
from coterie.agents.prompt import render
from coterie.agents.tokens import Thresholds, window_of
from coterie.agents.tools import BUILT_IN
from coterie.agents.tools.edit import Edit
from coterie.agents.tools.exit_plan_mode import ExitPlanMode
from coterie.agents.tools.notebook_edit import NotebookEdit
from coterie.agents.tools.search_transcript import SearchTranscript
from coterie.agents.tools.send_message import SendMessage
from coterie.agents.tools.tasks import TASK_TOOLS, task_tools
from coterie.agents.tools.tool import ForeignTool, Tool, definition
from coterie.mailbox.tasks import Owner, TaskList
from coterie.memory.clearing import ClearingLimits
from coterie.memory.tool_results import ResultLimits
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.mcp.limiting import opened_by
from coterie.orchestrator.settings import Settings

THINKING_BUDGET = 4_000
"""Tokens for models that must be told how long to think."""
TEAMWORK = (SendMessage.name, *TASK_TOOLS)
"""Without these a teammate could say nothing: it makes no report until it ends."""


def tools_of(room: Mailroom, tasks: TaskList, transcript: Path) -> dict[str, Tool]:
    """The tools of the agent whose mail is in *room*, in the order of a request; all agents have the same."""
    owner = Owner(name=room.sender.name, incarnation=room.sender.incarnation)
    sending = SendMessage(router=room.router, sender=room.sender)
    tools = (*BUILT_IN, SearchTranscript(path=transcript), sending, *task_tools(tasks, owner))
    return {tool.name: tool for tool in tools}


def thresholds_of(settings: Settings, model: Model) -> Thresholds:
    """When the context of an agent on *model* is full. Raises `ConfigInvalid`."""
    compact_window = settings.layers.window.compact_window
    window = window_of(settings.model, model, environ=os.environ, compact_window=compact_window)
    return Thresholds.for_window(window, model.max_output)


def begin_conversation(
    settings: Settings,
    model: Model,
    kind: Definition | None,
    tools: Mapping[str, Tool],
    manual: str = "",
    *,
    is_embedded: bool,
) -> Conversation:
    """A new conversation: what is in it and in its key header stays as long as it lasts.

    The *manual* of the agent's memory goes into its system prompt. Edits of the cache are offered by the embedded
    server alone.
    """
    clearing = settings.layers.clearing
    header = KeyHeader(
        model=model.id, effort=model.effort_of(settings.effort), thinking=_thinking(settings.thinking, model)
    )
    if clearing.by_cache and is_embedded:
        header = attrs.evolve(header, betas=(known_models().betas["cache_edits"],))
    if clearing.by_api:
        header = api_clearing(header, model, thresholds_of(settings, model), _clearing_limits(settings), tools)
    system = [render("agent"), manual, "" if kind is None else kind.prompt]
    defined = [definition(tool) for tool in tools.values()]
    return Conversation.begin(header, tools=defined, system=[text_block(text) for text in system if text])


def layers_of(settings: Settings, header: KeyHeader, tools: Mapping[str, Tool]) -> LayerSettings:
    """The layers of a conversation under *header*: what it was begun without, it cannot have later."""
    results, clearing = settings.layers.results, settings.layers.clearing
    caps = {tool.name: results.cap for tool in tools.values() if tool.result_cap is not None}
    foreign = {tool.name: results.mcp for tool in tools.values() if isinstance(tool, ForeignTool)}
    return LayerSettings(
        stores_results=results.enabled,
        results=ResultLimits(total=results.total, preview=results.preview),
        caps={**caps, **foreign, "Bash": results.bash, "Grep": results.grep},
        clears_by_time=clearing.by_time,
        clears_by_cache=known_models().betas["cache_edits"] in header.betas,
        clears_by_api=header.context_management is not None,
        clearing=_clearing_limits(settings),
    )


def permissions_of(settings: Settings, kind: Definition | None, *, is_teammate: bool = False) -> Permissions:
    """What an agent may do; a teammate can write to others, and use the task list, whatever its kind is for.

    Raises `ConfigInvalid` for a rule that is none.
    """
    return Permissions(
        mode=settings.permissions.mode,
        allow=_rules(settings, "allow"),
        ask=_rules(settings, "ask"),
        deny=(*_rules(settings, "deny"), *(_narrow(kind.disallowed_tools, kind) if kind else ())),
        limits=() if kind is None else (_limit(kind, TEAMWORK if is_teammate else ()),),
    )


def _limit(kind: Definition, besides: Sequence[str]) -> RoleLimit:
    """What agents of this kind may not call, whoever allows it. A tool listed with arguments is open for these only."""
    whole = {entry for entry in kind.tools or () if "(" not in entry}
    also = (ExitPlanMode.name, *opened_by(kind), *besides)
    denied = {entry for entry in kind.disallowed_tools if "(" not in entry}
    # Who wrote that an agent edits nothing did not mean all but notebooks.
    denied |= {NotebookEdit.name} if Edit.name in denied else set()
    return RoleLimit(
        name=kind.name,
        reason=f"An agent of the kind {kind.name} may not do this.",
        # Whoever must plan first can say its plan; to others the tool is of no use.
        allowed=None if kind.tools is None else frozenset((*map(bare_name, kind.tools), *also)),
        denied=frozenset(denied),
        only=tuple(rule for rule in _narrow(kind.tools or (), kind) if rule.tool not in whole),
    )


def _narrow(entries: Iterable[str], kind: Definition) -> tuple[Rule, ...]:
    return tuple(Rule.parse(entry, str(kind.source or kind.name)) for entry in entries if "(" in entry)


def _thinking(wanted: bool | None, model: Model) -> bytes | None:
    if wanted is None or (model.thinking == "always"):
        return None
    shapes: Mapping[str, dict[str, object]] = {
        "adaptive": {"type": "adaptive"},
        "extended": {"type": "enabled", "budget_tokens": THINKING_BUDGET},
    }
    return msgspec.json.encode(shapes[model.thinking] if wanted else {"type": "disabled"})


def _clearing_limits(settings: Settings) -> ClearingLimits:
    given = settings.layers.clearing
    return ClearingLimits(keep=given.keep, trigger=given.trigger, expected_turns=given.expected_turns)


def _rules(settings: Settings, name: str) -> tuple[Rule, ...]:
    texts: tuple[str, ...] = getattr(settings.permissions, name)
    sources = settings.item_sources(f"permissions.{name}")
    return tuple(Rule.parse(text, source) for text, source in zip(texts, sources, strict=True))
