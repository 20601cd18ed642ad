"""A story played under many random plans of faults; what must always be true is judged, not what the story expects."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events import Retrying
from coterie.scenarios.runner.fault_plans import FaultPlan, Scene, draw_plan
from coterie.scenarios.runner.flaws import StoryInvalid
from coterie.scenarios.runner.invariants import end_of, judge_invariants
from coterie.scenarios.runner.play import play
from coterie.scenarios.runner.played import Failure, Played
from coterie.scenarios.runner.stage import open_stage
from coterie.scenarios.runner.story import HumanAct, Story
from coterie.scenarios.server.script.yaml_lines import LineInvalid

RESUMES = 3
"""How often a session that was cut off is resumed."""


@attrs.frozen(kw_only=True)
class Trial:
    """What came of a story under one plan."""

    story: Story
    plan: FaultPlan
    seconds: float
    end: str
    struck: tuple[str, ...]
    """The kinds of those faults that met something."""
    failures: tuple[Failure, ...]
    place: Path | None = None

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seed": self.plan.seed,
            "passed": not self.failures,
            "end": self.end,
            "seconds": round(self.seconds, 3),
            "faults": list(self.plan.faults),
            "struck": list(self.struck),
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "place": None if self.place is None else str(self.place),
        }


def look_at_scene(story: Story, seed: int = 0) -> Scene:
    """What can be struck in *story*: it is played once, without any fault. Blocks.

    Raises `StoryInvalid` if it cannot do without its faults, and `OSError`.
    """
    undisturbed = attrs.evolve(story, acts=tuple(act for act in story.acts if isinstance(act, HumanAct)))
    with open_stage(undisturbed, seed, is_kept=False) as stage:
        played, failures = trio.run(partial(play, undisturbed, stage))
        failures += judge_invariants(story, played)
    if failures or end_of(played) != "done":
        reason = failures[0].reason if failures else f"it ends as {end_of(played)!r}"
        raise StoryInvalid(story.source, (LineInvalid(1, f"without faults it must end as done, but: {reason}"),))
    return Scene.of(story, played)


def try_plans(story: Story, scene: Scene, seeds: range, *, is_kept: bool = False) -> Iterator[Trial]:
    """Play *story* under the plan of each of *seeds*. Blocks; raises `OSError`."""
    for seed in seeds:
        yield try_plan(story, draw_plan(seed, scene), is_kept=is_kept)


def try_plan(story: Story, plan: FaultPlan, *, is_kept: bool = False) -> Trial:
    """Play *story* under *plan*. Blocks until nothing of it is left; raises `OSError`."""
    began, disturbed = time.monotonic(), plan.applied_to(story)
    with open_stage(disturbed, plan.seed, is_kept=is_kept) as stage:
        played, failures = trio.run(partial(play, disturbed, stage, resumes=RESUMES))
        # What did not meet anything is no fault of the team's.
        failures = [failure for failure in failures if failure not in played.missed]
        failures += judge_invariants(story, played)
    return Trial(
        story=story,
        plan=plan,
        seconds=time.monotonic() - began,
        end=end_of(played),
        struck=tuple(_struck(plan, played)),
        failures=tuple(failures),
        place=stage.root if is_kept else None,
    )


def count_kinds(trials: list[Trial]) -> Counter[str]:
    """How often each kind of fault was struck."""
    return Counter(kind for trial in trials for kind in trial.struck)


def _struck(plan: FaultPlan, played: Played) -> Iterator[str]:
    lines = iter(act.line for act in plan.acts())
    missed = {failure.line for failure in played.missed}
    is_refused = any(isinstance(observed.event, Retrying) for observed in played.events)
    for fault, kind in zip(plan.faults, plan.kinds, strict=True):
        if is_refused if "model" in fault else next(lines) not in missed:
            yield kind
