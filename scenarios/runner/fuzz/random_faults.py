"""Draws random fault plans, lists of faults to inject into a run of a scenario; the same seed gives the same plan."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from coterie.agents.events.root_events import AgentChanged
from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.parsing.action_parser import parse_faults
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors
from coterie.scenarios.runner.parsing.scenario_parser import script_data
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.scenario import (
    EVERYTHING,
    LEAD,
    ROOT,
    ZYGOTE,
    Scenario,
    ScenarioAction,
    ScenarioStep,
    UserAction,
)
from coterie.session_directory import MAIN

MOST = 4
"""Maximum number of faults in one random plan."""
_MOMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("started", "finished", "delivered"), ("agent",)),
    "tool_started": ("agent", "name"),
    "message": ("agent", "role"),
    **dict.fromkeys(("approval_asked", "approval_decided"), ("name",)),
}
"""Event kinds that can trigger a fault, each with the fields that the trigger compares."""
_FILES = ("*", "transcript.jsonl", "events.jsonl", "mail/*/*", "project/*")
_ROOT_FILES = ("*", "events.jsonl", "ledger.jsonl", "mail/*/*", "roster.json")
_MODEL = "model"
"""Key of a fault that makes a model reply fail. It is written into the script, not into the list of faults."""

FaultMapping = dict[str, Any]
"""A fault as JSON data: an item as in the `faults` list of a scenario file, or a fault of a model reply."""


@attrs.frozen(kw_only=True)
class FaultTargets:
    """Events and processes that faults can hit in a scenario, derived from a run without faults."""

    triggers: Sequence[FaultMapping]
    workers: Sequence[str]
    """Names of agents other than the lead (first agent) that have a process of their own."""
    replies: Mapping[str, int]
    """Number of replies in the script for each agent, by agent name."""

    @classmethod
    def of(cls, scenario: Scenario, undisturbed: ScenarioRun) -> "FaultTargets":
        """Return the fault targets of *undisturbed*, a run without faults; sorted, so that timing has no influence."""
        events = (observed for observed in undisturbed.events if observed.kind in _MOMENTS)
        triggers = ({"kind": each.kind, **{key: each.members[key] for key in _MOMENTS[each.kind]}} for each in events)
        found = {tuple(trigger.items()): trigger for trigger in triggers}
        changes = (observed.event for observed in undisturbed.events)
        workers = {event.name for event in changes if isinstance(event, AgentChanged) and event.pid is not None}
        script = script_data(scenario.script)
        replies = {name: len(listed) for name, listed in script.items() if isinstance(listed, list)}
        return cls(triggers=[found[key] for key in sorted(found)], workers=sorted(workers - {MAIN}), replies=replies)


@attrs.frozen(kw_only=True)
class RandomFaultPlan:
    """Random list of faults to inject into one run; the same seed and targets give the same plan."""

    seed: int
    faults: tuple[FaultMapping, ...]

    @property
    def text(self) -> str:
        """The plan as YAML for a file that `coterie scenario run --faults` accepts; model faults are left out."""
        lines = [msgspec.json.encode(fault).decode() for fault in self.faults if _MODEL not in fault]
        return "faults:\n" + "".join(f"  - {line}\n" for line in lines)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Name of the kind of each fault in the plan, such as `kill root`, for counting and output."""
        return tuple(_kind(fault) for fault in self.faults)

    def apply_to(self, scenario: Scenario) -> Scenario:
        """Return *scenario* with only the step `run`, and this plan instead of its own faults; user actions stay."""
        user_actions = [action for action in scenario.actions if isinstance(action, UserAction)]
        script = script_data(scenario.script)
        for fault in self.faults:
            if _MODEL in fault:
                replies, number = script[fault["agent"]], fault["reply"]
                reply = replies[number] if isinstance(replies[number], dict) else {"text": replies[number]}
                replies[number] = {**reply, "fault": fault[_MODEL]}
        return attrs.evolve(
            scenario,
            script=msgspec.json.encode(script).decode(),
            steps=(ScenarioStep(action="run"),),
            actions=(*self.actions(), *user_actions),
        )

    def actions(self) -> list[ScenarioAction]:
        """Return the faults of the plan as scenario actions, without model faults, which belong in the script."""
        if all(_MODEL in fault for fault in self.faults):
            return []
        root = read_yaml(self.text, "the plan")
        assert root is not None
        errors = ParseErrors()
        actions = parse_faults(root.fields()["faults"], errors)
        assert not errors.found, errors.found
        return actions


def draw_plan(seed: int, targets: FaultTargets) -> RandomFaultPlan:
    """Return the random plan of *seed*: one to `MOST` faults that hit *targets*."""
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kinds = draw.choices(tuple(_KINDS), weights=[weight for _, weight in _KINDS.values()], k=draw.randint(1, MOST))
    return RandomFaultPlan(seed=seed, faults=tuple(_KINDS[kind][0](draw, targets) for kind in kinds))


def _kill(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ZYGOTE, ROOT, EVERYTHING, *targets.workers))
    return {"when": _when(draw, targets, target), "do": "kill", "target": target}


def _stop(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ROOT, *targets.workers))
    seconds = round(draw.uniform(0.1, 1.5), 2)
    return {"when": _when(draw, targets, target), "do": "stop", "target": target, "seconds": seconds}


def _when(draw: random.Random, targets: FaultTargets, target: str) -> FaultMapping:
    """Return a random event to trigger a fault of *target*: one that names it, except `finished`, or else any event."""
    own = [trigger for trigger in targets.triggers if target in trigger.values() and trigger["kind"] != "finished"]
    return draw.choice(own or targets.triggers)


def _jump(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    return {"when": draw.choice(targets.triggers), "do": "jump", "seconds": draw.choice((10, 400, 4000))}


def _mail(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    fault: FaultMapping = {"do": draw.choice(("drop", "duplicate", "delay", "reorder")), "transport": "file"}
    if fault["do"] == "drop" and draw.random() < 0.5:
        fault["transport"] = "bell"
    if fault["do"] == "delay":
        fault["seconds"] = round(draw.uniform(0.1, 1.5), 2)
    fault["target"] = draw.choice((LEAD, LEAD, *targets.workers))
    return {**fault, "times": draw.randint(1, 3)}


def _disk(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ROOT, *targets.workers))
    files = draw.choice(_ROOT_FILES if target == ROOT else _FILES)
    return {
        "do": draw.choice(("torn_write", "disk_full", "fsync_fails", "rename_fails")),
        "target": target,
        "files": files,
        "after": draw.randint(0, 12 if files == "*" else 3),
        "times": draw.choice((1, 1, 2)),
    }


def _model(draw: random.Random, targets: FaultTargets) -> FaultMapping:
    kind = draw.choice(("rate_limit", "overloaded", "disconnect", "cut"))
    fault: FaultMapping = {"kind": kind, "count": draw.randint(1, 3)}
    if kind in ("rate_limit", "overloaded"):
        fault["retry_after"] = 0.2
    agent = draw.choice(tuple(targets.replies))
    return {_MODEL: fault, "agent": agent, "reply": draw.randrange(targets.replies[agent])}


_KINDS: Mapping[str, tuple[Callable[[random.Random, FaultTargets], FaultMapping], int]] = {
    "kill": (_kill, 4),
    "stop": (_stop, 2),
    "jump": (_jump, 1),
    "mail": (_mail, 3),
    "disk": (_disk, 2),
    "model": (_model, 2),
}
"""For each kind of fault: the function that draws a random fault, and the relative frequency of the kind."""


def _kind(fault: FaultMapping) -> str:
    if _MODEL in fault:
        return str(fault[_MODEL]["kind"])
    if fault["do"] == "kill":
        target = fault["target"]
        return f"kill {target if target in (LEAD, ZYGOTE, ROOT, EVERYTHING) else 'a worker'}"
    return f"{fault['do']} {fault['transport']}" if "transport" in fault else str(fault["do"])
