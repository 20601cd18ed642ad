"""Hook registry of one agent: an event runs all matching hooks concurrently."""

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
"""Maximum length of a changed input in an event, in characters."""


@attrs.frozen(kw_only=True)
class HookRegistry:
    """Hooks of one agent, and the input that every hook gets."""

    hooks: tuple[Hook, ...]
    facts: Callable[[], Mapping[str, Any]]
    """Returns the input of every hook: the session, the transcript, the directory, the mode."""
    directory: Path
    """Working directory of the hooks."""
    environment: Mapping[str, str]
    emit: Callable[[Event], None]

    def has(self, event: HookEvent) -> bool:
        """True if there is a hook for *event*."""
        return any(hook.event == event for hook in self.hooks)

    async def fire(self, event: HookEvent, subject: str = "", **facts: Any) -> HookDecision:
        """Run the hooks that match *event* concurrently, and return their combined decision.

        *subject* is compared with the matchers; *facts* is the input specific to this event. Each run emits an event.
        Cancellation kills all hooks first. Hooks that fail do not raise.
        """
        hooks = matching_hooks(self.hooks, event, subject)
        if not hooks:
            return HookDecision()
        # The standard library's JSON encoder, because it accepts file names that are not UTF-8.
        given = json.dumps({**self.facts(), "hook_event_name": event, **facts}).encode()
        outputs: dict[int, HookOutput] = {}
        async with trio.open_nursery() as nursery:
            for at, hook in enumerate(hooks):
                nursery.start_soon(self._run, at, hook, given, facts, outputs)
        return combine_outputs(outputs[at] for at in range(len(hooks)))

    async def _run(
        self, at: int, hook: Hook, given: bytes, facts: Mapping[str, Any], outputs: dict[int, HookOutput]
    ) -> None:
        result = await run_command(hook.command, given, self.directory, self.environment, limit=hook.timeout)
        output = outputs[at] = parse_output(hook.event, result)
        changed = None if output.updated_input is None else json.dumps(output.updated_input)[:LOGGED]
        self.emit(
            HookRan(
                event=hook.event,
                command=hook.command,
                source=hook.source,
                exit_code=result.exit_code,
                seconds=round(result.seconds, 6),
                decision=output.decision,
                reason=output.reason,
                message=output.message,
                tool=facts.get("tool_name"),
                tool_use_id=facts.get("tool_use_id"),
                changed_input=changed,
            )
        )
