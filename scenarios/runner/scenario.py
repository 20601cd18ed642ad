"""Content of a parsed scenario file: workspace, task, script, steps, user actions, faults, limits, expectations."""

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
"""Fault targets besides agent names: supervisor process, fork server, all processes, first agent (`main`)."""


@attrs.frozen(kw_only=True)
class Trigger:
    """Trigger of a user action or fault: the `nth` event that matches `pattern`, counted from 1."""

    pattern: EventPattern
    nth: int = 1
    line: int
    """Line of the triggered action in the scenario file."""

    def __str__(self) -> str:
        return f"{self.pattern}" if self.nth == 1 else f"{self.pattern}, occurrence {self.nth}"


@attrs.frozen(kw_only=True)
class _TriggeredAction:
    when: Trigger

    @property
    def line(self) -> int:
        """Line of this action in the scenario file."""
        return self.when.line


@attrs.frozen(kw_only=True)
class UserAction(_TriggeredAction):
    """Action of the scenario's user: a `coterie` command, such as `mail send`, that is run when an event occurs."""

    action: UserActionName
    to: str | None = None
    """For `mail`: the recipient. For `stop`: the agent to stop; None stops the whole session."""
    text: str = ""
    """For `mail`: the body. For `approve` and `reject`: the feedback. For `release`: a message id, or empty for all."""
    session: str = ""
    """For `begin`: name of the session to start. For `release`: session with the held mail; empty: the last started."""

    def __str__(self) -> str:
        return f"the user's {self.action} at {self.when}"


@attrs.frozen(kw_only=True)
class ProcessFault(_TriggeredAction):
    """Fault of processes or of the clock, applied when an event occurs: kill, stop, continue, or jump in time."""

    action: ProcessFaultName
    target: str = ""
    """Process to signal: an agent's name, `ROOT`, `ZYGOTE`, `EVERYTHING` or `LEAD`; empty for a jump."""
    seconds: float = 0.0
    """For `jump`: seconds to advance the clock. For `stop`: seconds until the process continues, or 0 for never."""

    def __str__(self) -> str:
        what = f"a jump of {self.seconds:g} s" if self.action == "jump" else f"{self.action} {self.target}"
        return f"the fault {what!r} at {self.when}"


@attrs.frozen(kw_only=True)
class IoFault:
    """Fault of mail or of file writes, such as a lost message or a full disk, injected into processes of the run."""

    rule: FaultRule
    """Rule that selects the messages or writes that fail; its `id` and `seed` are set by the run."""
    when: Trigger | None = None
    """Event that enables the fault; None if the fault is enabled from the start of the run."""
    line: int
    """Line of this fault in the scenario file."""

    def __str__(self) -> str:
        rule = self.rule
        where = "" if rule.transport is None else f" {rule.transport}"
        whose = f" of {rule.target}" if rule.target else ""
        when = "" if self.when is None else f" from {self.when} on"
        return f"the fault '{rule.do}{where}{whose}'{when}"


ScenarioAction = UserAction | ProcessFault | IoFault


@attrs.frozen(kw_only=True)
class ScenarioWorkspace:
    """Files that a run creates before its first command: texts by relative path."""

    files: Mapping[str, str] = attrs.field(factory=dict)
    home: Mapping[str, str] = attrs.field(factory=dict)
    """Files to create below `COTERIE_HOME`, the directory of the user's Coterie files."""
    is_git: bool = False
    """True if the run makes the workspace a git repository and commits all files."""


@attrs.frozen(kw_only=True)
class SecondSession:
    """Additional session of the same user in the same workspace; the scenario file calls its agent X `SESSION/X`."""

    task: str
    """Task of the session; `{{session}}` in it is replaced by the id of the session that was started before."""
    script: str
    """Script (model replies by agent) of this session, as YAML text."""


@attrs.frozen(kw_only=True)
class ScenarioStep:
    """A `coterie` command of the scenario's user, such as `run`; it ends before the next step starts."""

    action: Literal["run", "resume", "mail", "begin"]
    text: str = ""
    """For `run`: the task; empty: the scenario's task. For `resume`: the message to the lead. For `mail`: the body."""
    to: str = ""
    """For `mail`: the recipient. For `begin`: the name of the additional session to start."""
    line: int = 0
    """Line of a `begin` step in the scenario file; 0 for other steps."""


@attrs.frozen(kw_only=True)
class ScenarioLimits:
    """Limits of time and cost of one scenario run; a run that exceeds a limit fails."""

    seconds: float = 60.0
    dollars: Decimal | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    """A parsed scenario file: a test of a team of agents that get their model replies from a script."""

    name: str
    about: str
    source: Path
    workspace: ScenarioWorkspace
    task: str
    script: str
    """Script (model replies by agent) of the first session, as YAML text."""
    options: tuple[str, ...] = ()
    """Command-line options that the scenario sets for `coterie run`, such as `--model`."""
    resume_options: tuple[str, ...] = ()
    """Those of `options` that `coterie resume` accepts too."""
    team: Mapping[str, Any] | None = None
    """Content of the team file, which lists the agents to start; None if the scenario has no team."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings for the run, written to the `settings.toml` of its user."""
    sessions: Mapping[str, SecondSession] = attrs.field(factory=dict)
    """Additional sessions of the scenario, by name."""
    steps: tuple[ScenarioStep, ...]
    actions: tuple[ScenarioAction, ...] = ()
    limits: ScenarioLimits = ScenarioLimits()
    expectations: tuple[ScenarioCheck, ...]
