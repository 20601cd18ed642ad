"""Scenario: workspace, task, script, steps, actions, faults, limits and expectations."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.mailbox.fault_injection import FaultRule
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.expectations import ScenarioCheck

UserActionKind = Literal["approve", "reject", "mail", "stop", "begin", "release"]
ProcessFaultKind = Literal["kill", "stop", "continue", "jump"]

ROOT, ZYGOTE, EVERYTHING, LEAD = "root", "zygote", "everything", "lead"
"""Targets of a fault that are no agent's name; the lead is the agent main."""

SECONDS = 60.0
"""How long a story may take that does not say so."""


@attrs.frozen(kw_only=True)
class Trigger:
    """The moment at which something is done: when an event is seen, or seen for the so-manieth time."""

    pattern: EventPattern
    nth: int = 1
    line: int
    """Of the story's file."""

    def __str__(self) -> str:
        return f"{self.pattern}" if self.nth == 1 else f"{self.pattern}, for the {self.nth}. time"


@attrs.frozen(kw_only=True)
class UserAction:
    """What the user does, by a real command."""

    when: Trigger
    deed: UserActionKind
    to: str | None = None
    """Of mail: who gets it; of a stop: the agent, None for the whole session."""
    text: str = ""
    """Of mail and of a verdict: the words."""
    session: str = ""
    """Which other session is begun, or gets the mail that it holds; empty for the first."""

    @property
    def line(self) -> int:
        """Of the story's file."""
        return self.when.line

    def __str__(self) -> str:
        return f"the human's {self.deed} at {self.when}"


@attrs.frozen(kw_only=True)
class ProcessFault:
    """What goes wrong with processes, or with time."""

    when: Trigger
    deed: ProcessFaultKind
    target: str = ""
    """An agent's name, or one of the words above; nothing of a jump."""
    seconds: float = 0.0
    """Of a jump of the clock; of a stop, after which it goes on by itself, or 0 if it does not."""

    @property
    def line(self) -> int:
        """Of the story's file."""
        return self.when.line

    def __str__(self) -> str:
        what = f"a jump of {self.seconds:g} s" if self.deed == "jump" else f"{self.deed} {self.target}"
        return f"the fault {what!r} at {self.when}"


@attrs.frozen(kw_only=True)
class IoFault:
    """What goes wrong with mail or files, within the processes of the play, from a moment on."""

    order: FaultRule
    """Its id is given to it by the play."""
    when: Trigger | None = None
    """From which event on; None for the beginning."""
    line: int
    """Of the story's file."""

    def __str__(self) -> str:
        order = self.order
        where = "" if order.transport is None else f" {order.transport}"
        whose = f" of {order.target}" if order.target else ""
        when = "" if self.when is None else f" from {self.when} on"
        return f"the fault '{order.do}{where}{whose}'{when}"


ScenarioAction = UserAction | ProcessFault | IoFault


@attrs.frozen(kw_only=True)
class ScenarioWorkspace:
    """What is on the disk before anybody works: texts by path."""

    files: Mapping[str, str] = attrs.field(factory=dict)
    home: Mapping[str, str] = attrs.field(factory=dict)
    """Below `COTERIE_HOME`."""
    is_git: bool = False
    """Whether it is a repository, with all of it committed."""


@attrs.frozen(kw_only=True)
class SecondSession:
    """A further session of the same user in the same workspace; its agent X is `NAME/X` in the story."""

    task: str
    """`{{session}}` in it is the id of the session that was begun before."""
    script: str
    """YAML: what the model says in it."""


@attrs.frozen(kw_only=True)
class ScenarioStep:
    """One command of the user from a shell, run to its end before the next."""

    deed: Literal["run", "resume", "mail", "begin"]
    text: str = ""
    """The task, what to say next, or the mail."""
    to: str = ""
    """Of mail: to whom; of begin: which other session."""
    line: int = 0
    """Of the story's file."""


@attrs.frozen(kw_only=True)
class ScenarioLimits:
    """What a story may take; over it, it has failed."""

    seconds: float = SECONDS
    dollars: Decimal | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    """One scenario."""

    name: str
    about: str
    source: Path
    workspace: ScenarioWorkspace
    task: str
    script: str
    """YAML: what the model says."""
    options: tuple[str, ...] = ()
    """Of `coterie run`, beside the task and the script."""
    resume_options: tuple[str, ...] = ()
    """Those of them that `coterie resume` takes too."""
    team: Mapping[str, Any] | None = None
    """A team file's content."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """The user's settings file."""
    sessions: Mapping[str, SecondSession] = attrs.field(factory=dict)
    """Others than the first, by name."""
    steps: tuple[ScenarioStep, ...]
    acts: tuple[ScenarioAction, ...] = ()
    limits: ScenarioLimits = ScenarioLimits()
    expectations: tuple[ScenarioCheck, ...]
