"""Random fault plans: the same seed gives the same plan."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from coterie.agents.events.root_events import AgentChanged
from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.parsing.action_parser import parse_faults
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors
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
"""Faults in one plan."""
_MOMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("started", "finished", "delivered"), ("agent",)),
    "tool_started": ("agent", "name"),
    "message": ("agent", "role"),
    **dict.fromkeys(("approval_asked", "approval_decided"), ("name",)),
}
"""Events at which something may go wrong, and the members by which each is named."""
_FILES = ("*", "transcript.jsonl", "events.jsonl", "mail/*/*", "project/*")
_ROOT_FILES = ("*", "events.jsonl", "ledger.jsonl", "mail/*/*", "roster.json")
_MODEL = "model"
"""The key of a fault that is none of a story's own: a reply of the script goes wrong."""

FaultMapping = dict[str, Any]
"""A fault as a story's file has it."""


@attrs.frozen(kw_only=True)
class FaultTargets:
    """What can be struck in a story, and when, by how it went undisturbed."""

    moments: Sequence[FaultMapping]
    workers: Sequence[str]
    """Agents with a process of their own, but for the lead."""
    lanes: Mapping[str, int]
    """Whose replies the script has, and how many."""

    @classmethod
    def of(cls, story: Scenario, undisturbed: ScenarioRun) -> "FaultTargets":
        """In the order of their names, so that it is the same however the play went."""
        found = {tuple(moment.items()): moment for moment in _moments(undisturbed)}
        told = (observed.event for observed in undisturbed.events)
        workers = {event.name for event in told if isinstance(event, AgentChanged) and event.pid is not None}
        lanes = {name: len(replies) for name, replies in _script(story).items() if isinstance(replies, list)}
        return cls(moments=[found[key] for key in sorted(found)], workers=sorted(workers - {MAIN}), lanes=lanes)


@attrs.frozen(kw_only=True)
class RandomFaultPlan:
    """What goes wrong."""

    seed: int
    faults: tuple[FaultMapping, ...]

    @property
    def text(self) -> str:
        """As a file for `coterie scenario run --faults`, without what goes wrong with the model."""
        lines = [msgspec.json.encode(fault).decode() for fault in self.faults if _MODEL not in fault]
        return "faults:\n" + "".join(f"  - {line}\n" for line in lines)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each does, in a word or two."""
        return tuple(_kind(fault) for fault in self.faults)

    def apply_to(self, story: Scenario) -> Scenario:
        """*story* with these faults instead of its own, as one command; whatever else its human does is done."""
        human = [act for act in story.acts if isinstance(act, UserAction)]
        script = _script(story)
        for fault in self.faults:
            if _MODEL in fault:
                _add_model_fault(script[fault["agent"]], fault["reply"], fault[_MODEL])
        return attrs.evolve(
            story,
            script=msgspec.json.encode(script).decode(),
            steps=(ScenarioStep(deed="run"),),
            acts=(*self.actions(), *human),
        )

    def actions(self) -> list[ScenarioAction]:
        """Those of its faults that are acts of a play, in the order of the plan."""
        if all(_MODEL in fault for fault in self.faults):
            return []
        root = read_yaml(self.text, "the plan")
        assert root is not None
        flaws = ParseErrors()
        acts = parse_faults(root.fields()["faults"], flaws)
        assert not flaws.found, flaws.found
        return acts


def draw_plan(seed: int, scene: FaultTargets) -> RandomFaultPlan:
    """The plan of *seed*: one to `MOST` faults."""
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kinds = draw.choices(tuple(_KINDS), weights=[weight for _, weight in _KINDS.values()], k=draw.randint(1, MOST))
    return RandomFaultPlan(seed=seed, faults=tuple(_KINDS[kind][0](draw, scene) for kind in kinds))


def _moments(played: ScenarioRun) -> Iterator[FaultMapping]:
    for observed in played.events:
        if observed.kind in _MOMENTS:
            yield {"kind": observed.kind, **{key: observed.members[key] for key in _MOMENTS[observed.kind]}}


def _kill(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ZYGOTE, ROOT, EVERYTHING, *scene.workers))
    return {"when": _when(draw, scene, target), "do": "kill", "target": target}


def _stop(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ROOT, *scene.workers))
    seconds = round(draw.uniform(0.1, 1.5), 2)
    return {"when": _when(draw, scene, target), "do": "stop", "target": target, "seconds": seconds}


def _when(draw: random.Random, scene: FaultTargets, target: str) -> FaultMapping:
    """A moment at which *target* has a process: of a worker, when it does something itself."""
    own = [moment for moment in scene.moments if target in moment.values() and moment["kind"] != "finished"]
    return draw.choice(own or scene.moments)


def _jump(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    return {"when": draw.choice(scene.moments), "do": "jump", "seconds": draw.choice((10, 400, 4000))}


def _mail(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    fault: FaultMapping = {"do": draw.choice(("drop", "duplicate", "delay", "reorder")), "transport": "file"}
    if fault["do"] == "drop" and draw.random() < 0.5:
        fault["transport"] = "bell"
    if fault["do"] == "delay":
        fault["seconds"] = round(draw.uniform(0.1, 1.5), 2)
    fault["target"] = draw.choice((LEAD, LEAD, *scene.workers))
    return {**fault, "times": draw.randint(1, 3)}


def _disk(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    target = draw.choice((LEAD, ROOT, *scene.workers))
    files = draw.choice(_ROOT_FILES if target == ROOT else _FILES)
    return {
        "do": draw.choice(("torn_write", "disk_full", "fsync_fails", "rename_fails")),
        "target": target,
        "files": files,
        "after": draw.randint(0, 12 if files == "*" else 3),
        "times": draw.choice((1, 1, 2)),
    }


def _model(draw: random.Random, scene: FaultTargets) -> FaultMapping:
    kind = draw.choice(("rate_limit", "overloaded", "disconnect", "cut"))
    fault: FaultMapping = {"kind": kind, "count": draw.randint(1, 3)}
    if kind in ("rate_limit", "overloaded"):
        fault["retry_after"] = 0.2
    agent = draw.choice(tuple(scene.lanes))
    return {_MODEL: fault, "agent": agent, "reply": draw.randrange(scene.lanes[agent])}


_KINDS: Mapping[str, tuple[Callable[[random.Random, FaultTargets], FaultMapping], int]] = {
    "kill": (_kill, 4),
    "stop": (_stop, 2),
    "jump": (_jump, 1),
    "mail": (_mail, 3),
    "disk": (_disk, 2),
    "model": (_model, 2),
}
"""How each kind of fault is drawn, and how often."""


def _script(story: Scenario) -> dict[str, Any]:
    root = read_yaml(story.script, "the script")
    script: dict[str, Any] = {} if root is None else root.plain()
    return script


def _add_model_fault(replies: list[Any], number: int, fault: FaultMapping) -> None:
    reply = replies[number]
    replies[number] = {**(reply if isinstance(reply, dict) else {"text": reply}), "fault": fault}


def _kind(fault: FaultMapping) -> str:
    if _MODEL in fault:
        return str(fault[_MODEL]["kind"])
    if fault["do"] == "kill":
        target = fault["target"]
        return f"kill {target if target in (LEAD, ZYGOTE, ROOT, EVERYTHING) else 'a worker'}"
    return f"{fault['do']} {fault['transport']}" if "transport" in fault else str(fault["do"])
