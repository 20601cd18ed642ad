"""A scenario is a YAML file; whatever is wrong with it is found, with its lines, before anything starts."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import attrs
import msgspec

from coterie.agents.models import known_models
from coterie.agents.nearest import nearest as nearest_names
from coterie.orchestrator.settings import SETTINGS
from coterie.orchestrator.settings.schema import Mode
from coterie.scenarios.runner.act_reading import read_faults, read_human, read_steps
from coterie.scenarios.runner.beside import of_session
from coterie.scenarios.runner.cast import Cast, cast_of
from coterie.scenarios.runner.expect_reading import agents_of, dollars, read_expectations
from coterie.scenarios.runner.expectations import Dollars
from coterie.scenarios.runner.flaws import Flaws, StoryInvalid
from coterie.scenarios.runner.story import (
    EVERYTHING,
    LEAD,
    ROOT,
    ZYGOTE,
    Act,
    Disturbance,
    Fault,
    HumanAct,
    Limits,
    OtherSession,
    Story,
    Workspace,
)
from coterie.scenarios.server.script.reading import DEFAULT, read_lanes
from coterie.scenarios.server.script.yaml_lines import LineInvalid, Node, nearest, read_yaml

SUFFIX = ".yaml"
KEYS = (
    *("name", "about", "workspace", "task", "script", "team", "settings"),
    *("coordinator", "agent", "model", "permission_mode", "budget_usd", "max_turns", "bare"),
    *("sessions", "steps", "human", "faults", "limits", "expect"),
)
NEEDED = ("about", "task", "script", "expect")
_SETTINGS_FILE = "settings.toml"
_NO_TEXTS: dict[str, str] = {}


def load_story(path: Path) -> Story:
    """Read the scenario at *path*. Blocks; raises `StoryInvalid`, also for a file that cannot be read."""
    root = _root(path)
    flaws = Flaws()
    fields = flaws.fields(root, KEYS, "a scenario, with about, task, script and expect")
    for key in NEEDED if isinstance(root.value, dict) else ():
        if key not in fields:
            flaws.add(root.line, f"the scenario has no {key!r}")
    reader = _Reader(path=path, flaws=flaws, fields=fields)
    story = reader.story()
    reader.check_names(story)
    flaws.check(path)
    return story


def load_faults(path: Path, story: Story) -> Story:
    """*story* with the faults of the file at *path* behind its own: `faults: [...]`. Raises `StoryInvalid`."""
    flaws = Flaws()
    fields = flaws.fields(_root(path), ("faults", "human"), "a mapping with faults")
    acts = [*read_faults(fields.get("faults"), flaws), *read_human(fields.get("human"), flaws)]
    whole = attrs.evolve(story, acts=(*story.acts, *acts))
    _Reader(path=path, flaws=flaws, fields={}, script=_plain(story.script)).check_names(
        attrs.evolve(whole, acts=tuple(acts))
    )
    flaws.check(path)
    return whole


def _root(path: Path) -> Node:
    try:
        root = read_yaml(path.read_bytes().decode(), "the scenario")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise StoryInvalid(path, (LineInvalid(1, f"cannot be read: {reason}"),)) from exc
    except LineInvalid as exc:
        raise StoryInvalid(path, (exc,)) from exc
    if root is None:
        raise StoryInvalid(path, (LineInvalid(1, "the scenario is empty"),))
    return root


@attrs.define(eq=False, kw_only=True)
class _Reader:
    """Reads one file; alive while it does."""

    path: Path
    flaws: Flaws
    fields: Mapping[str, Node]
    script: Any = attrs.field(factory=dict)
    """As JSON has it."""
    team: Any = None

    def story(self) -> Story:
        """All of it; where there are flaws, with something in their place."""
        name = self.flaws.attempt(Node.text, self.fields.get("name"), self.path.stem)
        self.script, script = self.flaws.attempt(self._script, self.fields.get("script"), ({}, ""))
        self.team = self.flaws.attempt(self._team, self.fields.get("team"), None)
        limits, expectations = self._limits(), read_expectations(self.fields.get("expect"), self.flaws)
        if limits.dollars is not None:
            expectations = (*expectations, Dollars(line=self.fields["limits"].line, at_most=limits.dollars))
        options = list(self._options())
        return Story(
            name=name,
            about=self.flaws.attempt(Node.text, self.fields.get("about"), ""),
            source=self.path,
            workspace=self._workspace(),
            task=self.flaws.attempt(Node.text, self.fields.get("task"), ""),
            script=script,
            options=tuple(word for option, _ in options for word in option),
            resume_options=tuple(word for option, is_shared in options if is_shared for word in option),
            team=self.team,
            settings=self.flaws.attempt(self._settings, self.fields.get("settings"), {}),
            sessions=self._sessions(),
            steps=read_steps(self.fields.get("steps"), self.flaws),
            acts=self._acts(),
            limits=limits,
            expectations=expectations,
        )

    def check_names(self, story: Story) -> None:
        """Find the agents and sessions that are spoken of and cannot be there."""
        self._check_sessions(story)
        cast = self._cast(story)
        spoken = [(each.line, name) for each in story.expectations for name in agents_of(each)]
        spoken += [(act.line, name) for act in story.acts for name in _agents_of(act)]
        for line, name in spoken:
            if not cast.can_have(name):
                near = nearest_names(name, cast.names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there can be {', '.join(sorted(cast.names))}"
                self.flaws.add(line, f"there will be no agent {name!r}; {hint}")

    def _cast(self, story: Story) -> Cast:
        own = cast_of(self.script, self.team)
        others = {name: cast_of(_plain(other.script), None) for name, other in story.sessions.items()}
        names = {of_session(session, name) for session, cast in others.items() for name in cast.names}
        return attrs.evolve(own, names=own.names | names)

    def _check_sessions(self, story: Story) -> None:
        begun = [(step.line, step.to) for step in story.steps if step.deed == "begin"]
        begun += [(act.line, act.session) for act in story.acts if isinstance(act, HumanAct) and act.session]
        for line, name in begun:
            if name not in story.sessions:
                self.flaws.add(line, f"there is no session {name!r}; {nearest(name, story.sessions)}")

    def _sessions(self) -> dict[str, OtherSession]:
        with self.flaws.collecting():
            node = self.fields.get("sessions")
            named = {} if node is None else node.fields("sessions by name")
            return {name: self._session(name, each) for name, each in named.items()}
        return {}

    def _session(self, name: str, node: Node) -> OtherSession:
        fields = self.flaws.fields(node, ("task", "script"), "a session, with task and script")
        for key in {"task", "script"} - fields.keys():
            self.flaws.add(node.line, f"the session {name!r} has no {key!r}")
        task = self.flaws.attempt(Node.text, fields.get("task"), "")
        _, script = self.flaws.attempt(self._script, fields.get("script"), ({}, ""))
        return OtherSession(task=task, script=script)

    def _acts(self) -> tuple[Act, ...]:
        faults = read_faults(self.fields.get("faults"), self.flaws)
        return (*faults, *read_human(self.fields.get("human"), self.flaws))

    def _options(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Each option of `coterie run`, and whether `coterie resume` has it too."""
        for key, read, is_shared in _OPTIONS:
            if key in self.fields:
                with self.flaws.collecting():
                    yield read(self.fields[key]), is_shared

    def _script(self, node: Node) -> tuple[Any, str]:
        """A script as JSON has it, and as text."""
        text = None
        if node.is_scalar():
            path = self.path.parent / node.text()
            node = _root(path) if path.is_file() else _raise(node.refuse(f"there is no script {path}"))
            text = path.read_text()
        lanes = read_lanes(node)
        script = node.plain()
        if not {"main", DEFAULT} & set(lanes):
            raise node.refuse("the script has replies for neither main nor default: the lead is never answered")
        raised = {name for replies in lanes.values() for reply in replies for name in (*reply.asked, *reply.signals)}
        for reply in (reply for replies in lanes.values() for reply in replies):
            for name in set(reply.until) - raised:
                self.flaws.add(reply.line, f"{reply.name} waits for the signal {name!r}, which no reply raises")
        return script, text or msgspec.json.format(msgspec.json.encode(script), indent=1).decode()

    def _team(self, node: Node) -> dict[str, Any]:
        if not node.is_scalar():
            node.fields("a team, or the path of a team file")
            team: dict[str, Any] = node.plain()
            return team
        path = self.path.parent / node.text()
        try:
            return tomllib.loads(path.read_text())
        except (OSError, ValueError) as exc:
            raise node.refuse(f"the team file {path} cannot be read: {exc}") from exc

    def _settings(self, node: Node) -> dict[str, Any]:
        for key, value in _leaves(node):
            if key not in SETTINGS:
                raise value.refuse(f"there is no setting {key!r}; {nearest(key, SETTINGS)}")
        settings: dict[str, Any] = node.plain()
        return settings

    def _limits(self) -> Limits:
        fields = self.flaws.fields(self.fields.get("limits"), ("seconds", "dollars"), "limits")
        amount = self.flaws.attempt(dollars, fields["dollars"], None) if "dollars" in fields else None
        return Limits(seconds=self.flaws.attempt(Node.seconds, fields.get("seconds"), Limits().seconds), dollars=amount)

    def _workspace(self) -> Workspace:
        fields = self.flaws.fields(self.fields.get("workspace"), ("files", "home", "git"), "files, home and git")
        home = self.flaws.attempt(_texts, fields.get("home"), _NO_TEXTS)
        if _SETTINGS_FILE in home and "settings" in self.fields:
            self.flaws.add(fields["home"].line, f"{_SETTINGS_FILE} stands in home, and there are settings too")
        files = self.flaws.attempt(_texts, fields.get("files"), _NO_TEXTS)
        return Workspace(files=files, home=home, is_git=self.flaws.attempt(_truth, fields.get("git"), default=False))


def _plain(script: str) -> Any:
    root = read_yaml(script, "the script")
    return {} if root is None else root.plain()


def _raise(error: LineInvalid) -> Node:
    raise error


def _agents_of(act: Act) -> list[str]:
    names = [] if act.when is None else act.when.pattern.agents()
    if isinstance(act, Disturbance) and act.order.target not in ("", ROOT):
        names.append(act.order.target)
    if isinstance(act, Fault) and act.target not in ("", ROOT, ZYGOTE, EVERYTHING, LEAD):
        names.append(act.target)
    if isinstance(act, HumanAct) and act.deed == "stop" and act.to is not None:
        names.append(act.to)
    return names


def _leaves(node: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    for key, value in node.fields("settings").items():
        if isinstance(value.value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _texts(node: Node) -> dict[str, str]:
    texts = {}
    for name, content in node.fields("texts by path").items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise content.refuse(f"{name!r} leads out of the workspace; give a relative path")
        if not content.is_scalar():
            raise content.refuse_as("the text of a file")
        texts[name] = content.spelling
    return texts


def _truth(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise node.refuse_as("true or false")
    return node.value


def _flag(option: str) -> Callable[[Node], tuple[str, ...]]:
    return lambda node: (option,) if _truth(node) else ()


def _model(node: Node) -> tuple[str, ...]:
    name = node.text()
    if known_models().find(name) is None:
        raise node.refuse(f"{name!r} is not a known model")
    return "--model", name


def _mode(node: Node) -> tuple[str, ...]:
    if node.text() not in get_args(Mode):
        raise node.refuse(f"no permission mode is {node.text()!r}; {nearest(node.text(), get_args(Mode))}")
    return "--permission-mode", node.text()


_OPTIONS: tuple[tuple[str, Callable[[Node], tuple[str, ...]], bool], ...] = (
    ("coordinator", _flag("--coordinator"), False),
    ("agent", lambda node: ("--agent", node.text()), False),
    ("model", _model, False),
    ("permission_mode", _mode, True),
    ("budget_usd", lambda node: ("--max-budget-usd", str(dollars(node))), True),
    ("max_turns", lambda node: ("--max-turns", str(node.count())), True),
    ("bare", _flag("--bare"), True),
)
"""By key: how it becomes an option of `coterie run`, and whether `coterie resume` has it too."""
