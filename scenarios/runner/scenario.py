"""Scenario: workspace, task, script, steps, actions, faults, limits and expectations."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.mailbox.fault_injection import FaultRule
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.expectations import ScenarioCheck

UserActionName = Literal["approve", "reject", "mail", "stop", "begin", "release"]
ProcessFaultName = Literal["kill", "stop", "continue", "jump"]

ROOT, ZYGOTE, EVERYTHING, LEAD = "root", "zygote", "everything", "lead"
"""Fault targets that are not agent names; the lead is the agent `main`."""


@attrs.frozen(kw_only=True)
class Trigger:
    """An event, and which of its occurrences triggers an action."""

    pattern: EventPattern
    nth: int = 1
    line: int
    """Line in the scenario file."""

    def __str__(self) -> str:
        return f"{self.pattern}" if self.nth == 1 else f"{self.pattern}, occurrence {self.nth}"


@attrs.frozen(kw_only=True)
class _TriggeredAction:
    when: Trigger

    @property
    def line(self) -> int:
        """Line in the scenario file."""
        return self.when.line


@attrs.frozen(kw_only=True)
class UserAction(_TriggeredAction):
    """A command that the user runs when an event is seen."""

    action: UserActionName
    to: str | None = None
    """Mail: the recipient. Stop: the agent; None for the whole session."""
    text: str = ""
    """Mail: the body. Approve and reject: the feedback. Release: the message id."""
    session: str = ""
    """Begin: the second session to start. Release: the session that holds the mail. Empty for the first session."""

    def __str__(self) -> str:
        return f"the user's {self.action} at {self.when}"


@attrs.frozen(kw_only=True)
class ProcessFault(_TriggeredAction):
    """A fault of processes or of the clock."""

    action: ProcessFaultName
    target: str = ""
    """An agent's name or one of `ROOT`, `ZYGOTE`, `EVERYTHING`, `LEAD`; empty for a clock jump."""
    seconds: float = 0.0
    """Jump: how far the clock advances. Stop: time until the process continues; 0 if it stays stopped."""

    def __str__(self) -> str:
        what = f"a jump of {self.seconds:g} s" if self.action == "jump" else f"{self.action} {self.target}"
        return f"the fault {what!r} at {self.when}"


@attrs.frozen(kw_only=True)
class IoFault:
    """A fault of mail or files, injected into the processes of the run."""

    rule: FaultRule
    """The rule without its id, which the run assigns."""
    when: Trigger | None = None
    """The event from which on the fault applies; None for the start of the run."""
    line: int
    """Line in the scenario file."""

    def __str__(self) -> str:
        rule = self.rule
        where = "" if rule.transport is None else f" {rule.transport}"
        whose = f" of {rule.target}" if rule.target else ""
        when = "" if self.when is None else f" from {self.when} on"
        return f"the fault '{rule.do}{where}{whose}'{when}"


ScenarioAction = UserAction | ProcessFault | IoFault


@attrs.frozen(kw_only=True)
class ScenarioWorkspace:
    """Files that exist before the first command: contents by path."""

    files: Mapping[str, str] = attrs.field(factory=dict)
    home: Mapping[str, str] = attrs.field(factory=dict)
    """Files below `COTERIE_HOME`."""
    is_git: bool = False
    """True if the workspace is a git repository with all files committed."""


@attrs.frozen(kw_only=True)
class SecondSession:
    """Another session of the same user in the same workspace; its agent X is called `NAME/X` in the scenario."""

    task: str
    """Task; `{{session}}` in it is the id of the session that was started before."""
    script: str
    """Script as YAML."""


@attrs.frozen(kw_only=True)
class ScenarioStep:
    """A shell command of the user, run to its end before the next step."""

    action: Literal["run", "resume", "mail", "begin"]
    text: str = ""
    """The task of a run, the message of a resume, or the body of mail."""
    to: str = ""
    """Mail: the recipient. Begin: the name of the session."""
    line: int = 0
    """Line in the scenario file."""


@attrs.frozen(kw_only=True)
class ScenarioLimits:
    """Time and cost limits of a scenario; exceeding one is a failure."""

    seconds: float = 60.0
    dollars: Decimal | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    """A parsed scenario."""

    name: str
    about: str
    source: Path
    workspace: ScenarioWorkspace
    task: str
    script: str
    """Script as YAML."""
    options: tuple[str, ...] = ()
    """Options of `coterie run` in addition to task and script."""
    resume_options: tuple[str, ...] = ()
    """The subset of `options` that `coterie resume` accepts."""
    team: Mapping[str, Any] | None = None
    """Content of the team file."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Content of the user's settings file."""
    sessions: Mapping[str, SecondSession] = attrs.field(factory=dict)
    """Second sessions by name."""
    steps: tuple[ScenarioStep, ...]
    actions: tuple[ScenarioAction, ...] = ()
    limits: ScenarioLimits = ScenarioLimits()
    expectations: tuple[ScenarioCheck, ...]
