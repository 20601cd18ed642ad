"""Hook registry of one agent: runs the hooks for an event, parses their output, and combines their decisions."""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from coterie.agents.events.agent_events import Event, HookRan
from coterie.agents.hooks.hook import Hook, HookEvent, matching_hooks
from coterie.agents.tools.worker_process import BoundedOutput
from coterie.agents.tools.workspace.shell_process import SHELL, open_output_reader, start_process, wait_or_kill

KEPT_CHARACTERS = 500_000
"""Number of characters kept from the beginning of a hook's output, and again from its end."""
BLOCKING_EXIT_CODE = 2
"""Exit code with which a hook command blocks the action of its event."""
MAX_CHARACTERS = 10_000
"""Maximum number of characters of a hook's text that the model or the log gets."""
CANNOT_BLOCK: frozenset[HookEvent] = frozenset({"SessionStart", "SessionEnd", "PostCompact"})
"""Events that a hook cannot block, because the action has already happened."""
OutputDecision = Literal["none", "allow", "ask", "block", "stop", "failed"]
"""Decision of one hook. "stop": end the agent's run. "failed": the hook itself failed, which has no effect."""
LOGGED = 2_000
"""Maximum number of characters of a tool input changed by a hook that the event about the hook contains."""


@attrs.frozen(kw_only=True)
class CommandResult:
    """Result of running the command of one hook."""

    exit_code: int | None
    """Exit code; 128 plus the number of a signal that ended it; None if it could not start or was too slow."""
    output: str = ""
    errors: str = ""
    seconds: float
    failure: str = ""
    """Reason why there is no exit code; empty if there is one."""


async def run_command(
    command: str, given: bytes, directory: Path, environment: Mapping[str, str], *, limit: float, grace: float = 1.0
) -> CommandResult:
    """Run *command* in a shell with *given* on its standard input, for at most *limit* seconds.

    The command may ignore its input. At its exit, at the timeout or at a cancellation, the whole process group gets
    SIGTERM, and SIGKILL *grace* seconds later; processes that have left the group are waited for only briefly. Never
    returns before the shell has ended. A command that fails, or that cannot be started, does not raise.
    """
    began = trio.current_time()
    output, errors = BoundedOutput(KEPT_CHARACTERS), BoundedOutput(KEPT_CHARACTERS)
    (stdin, feed), (output_end, stdout), (errors_end, stderr) = (os.pipe() for _ in range(3))
    own_ends = (feed, output_end, errors_end)
    try:
        process = start_process([SHELL, "-c", command], directory, environment, (stdin, stdout, stderr), own_ends)
    except (OSError, ValueError) as exc:
        return CommandResult(exit_code=None, seconds=0.0, failure=f"could not be started: {exc}")
    try:
        async with (
            trio.lowlevel.FdStream(feed) as given_stream,
            trio.lowlevel.FdStream(output_end) as output_stream,
            trio.lowlevel.FdStream(errors_end) as errors_stream,
            open_output_reader(output_stream, output.add),
            open_output_reader(errors_stream, errors.add),
            _open_feed(given_stream, given),
        ):
            with trio.move_on_after(limit) as scope:
                await wait_or_kill(process.pid, grace, ends_group=True)
    finally:
        # Reaped only now: until then the kernel cannot reuse the id of the process group.
        process.poll()
    is_late = scope.cancelled_caught
    return CommandResult(
        exit_code=None if is_late else process.returncode if process.returncode >= 0 else 128 - process.returncode,
        output=output.finish(),
        errors=errors.finish(),
        seconds=trio.current_time() - began,
        failure=f"killed after {limit:g} s" if is_late else "",
    )


@asynccontextmanager
async def _open_feed(stream: trio.lowlevel.FdStream, given: bytes) -> AsyncIterator[None]:
    """Write *given* to the pipe *stream* in the background while the block runs; close the pipe afterwards."""

    async def feed() -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # The command has closed its standard input.
            async with stream:
                await stream.send_all(given)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        yield
        # A command that exits without reading all of its input does not need the rest.
        nursery.cancel_scope.cancel()


@attrs.frozen(kw_only=True)
class HookOutput:
    """Parsed output of one run of a hook: the decision and the texts."""

    decision: OutputDecision = "none"
    reason: str = ""
    """Reason of the decision, for the model and the event log; if the hook failed, the failure, for the event log."""
    context: str = ""
    """Additional information for the model; empty for none."""
    updated_input: Mapping[str, Any] | None = None
    """Input that replaces the input of the tool call; None for no change."""
    message: str = ""
    """Message for the user; empty for none."""


@attrs.frozen(kw_only=True)
class HookDecision:
    """Combined output of all hooks of one event: one hook that blocks is enough, and "ask" wins over "allow"."""

    outputs: tuple[HookOutput, ...] = ()

    @property
    def objections(self) -> tuple[str, ...]:
        """Reasons of all hooks that block the action."""
        return tuple(each.reason for each in self.outputs if each.decision == "block")

    @property
    def stop(self) -> str | None:
        """Reason of the first hook that ends the run of the agent; None if no hook does."""
        return next((each.reason for each in self.outputs if each.decision == "stop"), None)

    @property
    def refusal(self) -> str | None:
        """Reasons of all hooks that block, and of the first that ends the run, one per line; None if no hook does."""
        return "\n".join((*self.objections, *(() if self.stop is None else (self.stop,)))) or None

    @property
    def vote(self) -> Literal["allow", "ask"] | None:
        """Vote on the tool call: "ask" prompts the user, "allow" skips the prompt, None is no vote; "ask" wins."""
        decisions = {each.decision for each in self.outputs}
        return "ask" if "ask" in decisions else "allow" if "allow" in decisions else None

    @property
    def vote_reason(self) -> str:
        """Reason of the first hook with the combined vote; empty without a vote."""
        return next((each.reason for each in self.outputs if each.decision == self.vote), "")

    @property
    def contexts(self) -> tuple[str, ...]:
        """Additional information for the model, one text for each hook that has printed such a text."""
        return tuple(each.context for each in self.outputs if each.context)

    @property
    def updated_input(self) -> Mapping[str, Any] | None:
        """Input that replaces the input of the tool call, from the last hook that changes it; None for no change."""
        updates = [each.updated_input for each in self.outputs if each.updated_input is not None]
        return updates[-1] if updates else None


def combine_outputs(outputs: Iterable[HookOutput]) -> HookDecision:
    """Combine *outputs*, one for each hook that ran, in the order of the hooks."""
    return HookDecision(outputs=tuple(outputs))


def parse_output(event: HookEvent, ran: CommandResult) -> HookOutput:
    """Return the decision and texts of a hook for *event*, from the result *ran* of its command. Never raises."""
    errors, output = ran.errors.strip()[:MAX_CHARACTERS], ran.output.strip()
    if ran.exit_code is None:
        return HookOutput(decision="failed", reason=ran.failure)
    if ran.exit_code == BLOCKING_EXIT_CODE and event not in CANNOT_BLOCK:
        return HookOutput(decision="block", reason=errors or "No reason was given.")
    if ran.exit_code != 0:
        return HookOutput(decision="failed", reason=errors or f"exit code {ran.exit_code}")
    if not output.startswith("{"):
        # For other events, plain text output is ignored, as with a program that succeeds.
        return HookOutput(context=output[:MAX_CHARACTERS] if event == "SessionStart" else "")
    try:
        return _parse_object(event, json.loads(output))
    except (ValueError, RecursionError) as exc:
        message = str(exc) if isinstance(exc, _InvalidOutput) else f"the output is not valid JSON: {exc}"
        return HookOutput(decision="failed", reason=message[:MAX_CHARACTERS])


class _InvalidOutput(ValueError):
    """Error: the JSON output of a hook is invalid; the text is for the user."""


def _parse_object(event: HookEvent, value: dict[str, Any]) -> HookOutput:
    own = _event_specific(event, value)
    parsed = HookOutput(context=_text(own, "additionalContext"), message=_text(value, "systemMessage"))
    if event == "PreToolUse":
        updated = own.get("updatedInput")
        if updated is not None and not isinstance(updated, dict):
            raise _InvalidOutput("in the JSON output of this hook, updatedInput must be an object; correct the hook")
        parsed = attrs.evolve(parsed, updated_input=updated)
    if value.get("continue") is False:
        return attrs.evolve(parsed, decision="stop", reason=_text(value, "stopReason") or "A hook has ended the run.")
    decision, reason = _decision(event, value, own)
    return attrs.evolve(parsed, decision=decision, reason=reason)


def _event_specific(event: HookEvent, value: dict[str, Any]) -> dict[str, Any]:
    """Return the member `hookSpecificOutput` of the output *value*, empty if missing. Raises `_InvalidOutput`."""
    own = value.get("hookSpecificOutput", {})
    if not isinstance(own, dict):
        raise _InvalidOutput("in the JSON output of this hook, hookSpecificOutput must be an object; correct the hook")
    if (name := own.get("hookEventName", event)) != event:
        problem = f"hookEventName is {name!r}, but the event is {event}"
        raise _InvalidOutput(f"in the JSON output of this hook, {problem}; correct or remove hookEventName")
    return own


def _decision(event: HookEvent, value: dict[str, Any], own: dict[str, Any]) -> tuple[OutputDecision, str]:
    given, reason = value.get("decision"), _text(value, "reason")
    if event == "PreToolUse" and "permissionDecision" in own:
        given, reason = own["permissionDecision"], _text(own, "permissionDecisionReason")
    decisions: dict[Any, OutputDecision] = {None: "none", "block": "block", "approve": "none"}
    if event == "PreToolUse":
        decisions |= {"deny": "block", "allow": "allow", "ask": "ask", "approve": "allow"}
    if not isinstance(given, str | None) or given not in decisions:
        known = ", ".join(repr(each) for each in decisions if each is not None)
        raise _InvalidOutput(f"in the JSON output of this hook, the decision is {given!r}; for {event} use {known}")
    if decisions[given] == "block" and event in CANNOT_BLOCK:
        raise _InvalidOutput(
            f"{event} has already happened, so this hook cannot block it; remove the decision {given!r}"
        )
    return decisions[given], reason or ("No reason was given." if decisions[given] == "block" else "")


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _InvalidOutput(f"in the JSON output of this hook, {key} must be a text; correct the hook")
    return text[:MAX_CHARACTERS]


@attrs.frozen(kw_only=True)
class HookRegistry:
    """Hooks of one agent, and the data that is needed to run them."""

    hooks: tuple[Hook, ...]
    facts: Callable[[], Mapping[str, Any]]
    """Function that returns the input common to all hooks: session, transcript, directory, permission mode, agent."""
    directory: Path
    """Working directory in which the hook commands run."""
    environment: Mapping[str, str]
    emit: Callable[[Event], None]

    def has(self, event: HookEvent) -> bool:
        """True if the agent has a hook for *event*."""
        return any(hook.event == event for hook in self.hooks)

    async def fire(self, event: HookEvent, subject: str = "", **facts: Any) -> HookDecision:
        """Run the hooks that match *event* concurrently, and return their combined decision.

        *subject* is compared with the matchers; *facts* is the input specific to this event. Emits an event for each
        hook. Cancellation kills all hooks first. Hooks that fail do not raise.
        """
        hooks = matching_hooks(self.hooks, event, subject)
        if not hooks:
            return HookDecision()
        # The standard library's JSON encoder, because it accepts file names that are not UTF-8.
        given = json.dumps({**self.facts(), "hook_event_name": event, **facts}).encode()
        outputs: dict[Hook, HookOutput] = {}
        async with trio.open_nursery() as nursery:
            for hook in hooks:
                nursery.start_soon(self._run, hook, given, facts, outputs)
        return combine_outputs(outputs[hook] for hook in hooks)

    async def _run(self, hook: Hook, given: bytes, facts: Mapping[str, Any], outputs: dict[Hook, HookOutput]) -> None:
        result = await run_command(hook.command, given, self.directory, self.environment, limit=hook.timeout)
        output = outputs[hook] = parse_output(hook.event, result)
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
