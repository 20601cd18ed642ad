"""Output of hooks, parsed from exit code and text, and the decision that several of them lead to."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs

from coterie.agents.hooks.hook import HookEvent
from coterie.agents.hooks.hook_process import CommandResult

BLOCKS = 2
"""The exit code by which a hook objects."""
LONGEST = 10_000
"""Characters of what a hook says that reach the model or the log."""
CANNOT_BLOCK: frozenset[HookEvent] = frozenset({"SessionStart", "SessionEnd", "PostCompact"})
"""Events that nobody can object to: they have happened."""

OutputDecision = Literal["none", "allow", "ask", "block", "stop", "failed"]
"""failed: the hook itself went wrong, which stops nobody. stop: the whole run is to end."""


@attrs.frozen(kw_only=True)
class HookOutput:
    """What one run of a hook says."""

    decision: OutputDecision = "none"
    reason: str = ""
    """Why, in words for the model; of a failure, for the user."""
    context: str = ""
    """What the model should know besides."""
    updated_input: Mapping[str, Any] | None = None
    """What the call is to be made with instead."""
    message: str = ""
    """For the user."""


@attrs.frozen(kw_only=True)
class HookDecision:
    """What all hooks of one event say together: who objects wins, and who asks wins over who allows."""

    outputs: tuple[HookOutput, ...] = ()

    @property
    def objections(self) -> tuple[str, ...]:
        """Why not, each a reason."""
        return tuple(each.reason for each in self.outputs if each.decision == "block")

    @property
    def stop(self) -> str | None:
        """Why the run is to end; None if it is not."""
        return next((each.reason for each in self.outputs if each.decision == "stop"), None)

    @property
    def vote(self) -> Literal["allow", "ask"] | None:
        """What they want of the permission for a call."""
        decisions = {each.decision for each in self.outputs}
        return "ask" if "ask" in decisions else "allow" if "allow" in decisions else None

    @property
    def vote_reason(self) -> str:
        """Why they want that."""
        return next((each.reason for each in self.outputs if each.decision == self.vote), "")

    @property
    def contexts(self) -> tuple[str, ...]:
        """What the model should know, from each that has something to say."""
        return tuple(each.context for each in self.outputs if each.context)

    @property
    def updated_input(self) -> Mapping[str, Any] | None:
        """What the call is to be made with; of several, the last hook's."""
        updates = [each.updated_input for each in self.outputs if each.updated_input is not None]
        return updates[-1] if updates else None


def combine_outputs(said: Iterable[HookOutput]) -> HookDecision:
    """What they say together, in the order of the hooks, whoever was ready first."""
    return HookDecision(outputs=tuple(said))


def parse_output(event: HookEvent, ran: CommandResult) -> HookOutput:
    """What a run of a hook for *event* says."""
    errors, output = ran.errors.strip()[:LONGEST], ran.output.strip()
    if ran.exit_code is None:
        return HookOutput(decision="failed", reason=ran.failure)
    if ran.exit_code == BLOCKS and event not in CANNOT_BLOCK:
        return HookOutput(decision="block", reason=errors or "It gave no reason.")
    if ran.exit_code != 0:
        return HookOutput(decision="failed", reason=errors or f"it ended with {ran.exit_code}")
    if output.startswith("{"):
        return _read(event, output)
    # Of other events what is printed is for nobody, as with a program that runs well.
    return HookOutput(context=output[:LONGEST] if event == "SessionStart" else "")


class _Unfit(ValueError):
    """What a hook printed cannot be used."""


def _read(event: HookEvent, output: str) -> HookOutput:
    try:
        value = json.loads(output)
        return _parse_object(event, value)
    except (ValueError, RecursionError) as exc:
        words = str(exc) if isinstance(exc, _Unfit) else f"it printed what is no JSON: {exc}"
        return HookOutput(decision="failed", reason=words[:LONGEST])


def _parse_object(event: HookEvent, value: dict[str, Any]) -> HookOutput:
    own = _own(event, value)
    said = HookOutput(context=_text(own, "additionalContext"), message=_text(value, "systemMessage"))
    if event == "PreToolUse":
        updated = own.get("updatedInput")
        if updated is not None and not isinstance(updated, dict):
            raise _Unfit("updatedInput must be an object")
        said = attrs.evolve(said, updated_input=updated)
    if value.get("continue") is False:
        return attrs.evolve(said, decision="stop", reason=_text(value, "stopReason") or "A hook has ended the run.")
    decision, reason = _decision(event, value, own)
    return attrs.evolve(said, decision=decision, reason=reason)


def _own(event: HookEvent, value: dict[str, Any]) -> dict[str, Any]:
    """The part that is about this event alone."""
    own = value.get("hookSpecificOutput", {})
    if not isinstance(own, dict):
        raise _Unfit("hookSpecificOutput must be an object")
    if (name := own.get("hookEventName", event)) != event:
        raise _Unfit(f"hookEventName is {name!r}, but this was {event}")
    return own


def _decision(event: HookEvent, value: dict[str, Any], own: dict[str, Any]) -> tuple[OutputDecision, str]:
    word, reason = value.get("decision"), _text(value, "reason")
    if event == "PreToolUse" and "permissionDecision" in own:
        word, reason = own["permissionDecision"], _text(own, "permissionDecisionReason")
    words: dict[Any, OutputDecision] = {None: "none", "block": "block", "approve": "none"}
    if event == "PreToolUse":
        words |= {"deny": "block", "allow": "allow", "ask": "ask", "approve": "allow"}
    if not isinstance(word, str | None) or word not in words:
        known = ", ".join(repr(each) for each in words if each is not None)
        raise _Unfit(f"the decision is {word!r}; of {event} it can be {known}")
    if words[word] == "block" and event in CANNOT_BLOCK:
        raise _Unfit(f"{event} has happened and cannot be blocked")
    return words[word], reason or ("It gave no reason." if words[word] == "block" else "")


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _Unfit(f"{key} must be a text")
    return text[:LONGEST]
