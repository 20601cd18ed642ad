"""Hook registry of one agent: an event runs the hooks that match it, all at once."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import Event, HookRan
from coterie.agents.hooks.hook import Hook, HookEvent, matching_hooks
from coterie.agents.hooks.hook_output import HookDecision, HookOutput, combine_outputs, parse_output
from coterie.agents.hooks.hook_process import run_command

LOGGED = 2_000
"""Characters of a changed input that an event holds."""


@attrs.frozen(kw_only=True)
class HookRegistry:
    """Those of one agent, and what they are told each time."""

    hooks: tuple[Hook, ...]
    facts: Callable[[], Mapping[str, Any]]
    """What every hook is told: the session, the transcript, the directory, the mode."""
    directory: Path
    """Where they run."""
    environment: Mapping[str, str]
    emit: Callable[[Event], None]

    def has(self, event: HookEvent) -> bool:
        """Whether there is any for *event*."""
        return any(hook.event == event for hook in self.hooks)

    async def fire(self, event: HookEvent, subject: str = "", **facts: Any) -> HookDecision:
        """Run the hooks that *event* concerns, all at once, and return what they say together.

        *subject* is what matchers are held against; *facts* are what this event has to tell. Each run is an event of
        its own. When cancelled, all are ended first. Raises nothing for what hooks do.
        """
        hooks = matching_hooks(self.hooks, event, subject)
        if not hooks:
            return HookDecision()
        # The standard library's JSON, because it keeps names that are not UTF-8.
        given = json.dumps({**self.facts(), "hook_event_name": event, **facts}).encode()
        said: dict[int, HookOutput] = {}
        async with trio.open_nursery() as nursery:
            for at, hook in enumerate(hooks):
                nursery.start_soon(self._run, at, hook, given, facts, said)
        return combine_outputs(said[at] for at in range(len(hooks)))

    async def _run(
        self, at: int, hook: Hook, given: bytes, facts: Mapping[str, Any], said: dict[int, HookOutput]
    ) -> None:
        ran = await run_command(hook.command, given, self.directory, self.environment, limit=hook.timeout)
        words = said[at] = parse_output(hook.event, ran)
        changed = None if words.updated_input is None else json.dumps(words.updated_input)[:LOGGED]
        self.emit(
            HookRan(
                event=hook.event,
                command=hook.command,
                source=hook.source,
                exit_code=ran.exit_code,
                seconds=round(ran.seconds, 6),
                decision=words.decision,
                reason=words.reason,
                message=words.message,
                tool=facts.get("tool_name"),
                tool_use_id=facts.get("tool_use_id"),
                changed_input=changed,
            )
        )
