"""Parses scenario files, reporting all errors with their lines, and finds scenarios shipped with Coterie by name."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import attrs
import msgspec

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.settings import SETTINGS, Mode
from coterie.errors import ConfigInvalid
from coterie.scenarios.api_server.script.located_yaml import LineInvalid, YamlNode, known_names_hint, read_yaml
from coterie.scenarios.api_server.script.script_parser import DEFAULT, parse_replies
from coterie.scenarios.runner.expectations import CostWithin
from coterie.scenarios.runner.parsing.action_parser import STEP_SCHEMA, parse_faults, parse_steps, parse_user_actions
from coterie.scenarios.runner.parsing.agent_names import known_agents
from coterie.scenarios.runner.parsing.expectation_parser import expected_agents, parse_expectations
from coterie.scenarios.runner.parsing.grammar import (
    BOOLEAN,
    COUNT,
    DOLLARS,
    SECONDS,
    TEXT,
    Schema,
    list_schema,
    mapping_schema,
    one_of,
)
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors, ScenarioInvalid
from coterie.scenarios.runner.scenario import (
    EVERYTHING,
    LEAD,
    ROOT,
    ZYGOTE,
    IoFault,
    ProcessFault,
    Scenario,
    ScenarioAction,
    ScenarioLimits,
    ScenarioWorkspace,
    SecondSession,
    UserAction,
)
from coterie.scenarios.runner.user_commands import qualify_agent
from coterie.suggestions import closest_match, did_you_mean

SUFFIX = ".yaml"
NEEDED = ("about", "task", "script", "expect")
_SETTINGS_FILE = "settings.toml"
_NO_TEXTS: dict[str, str] = {}
_MODE = one_of(get_args(Mode), "unknown permission mode {}")
_SCRIPT: Schema = {"$ref": "#/$defs/script"}
_TEXTS: Schema = {"type": "object", "additionalProperties": TEXT.schema}
_SESSION = mapping_schema({"task": TEXT.schema, "script": _SCRIPT}, ("task", "script"))
KEYS: Mapping[str, Schema] = {
    **dict.fromkeys(("name", "about"), TEXT.schema),
    "workspace": mapping_schema({"files": _TEXTS, "home": _TEXTS, "git": BOOLEAN.schema}),
    "task": TEXT.schema,
    "script": _SCRIPT,
    "team": {"description": "Content of a team file, or its path; see teams.md.", "type": ["string", "object"]},
    "settings": {"description": "The user's settings.toml; see settings.md.", "type": "object", "minProperties": 1},
    "coordinator": BOOLEAN.schema,
    **dict.fromkeys(("agent", "model"), TEXT.schema),
    "permission_mode": _MODE.schema,
    "budget_usd": DOLLARS.schema,
    "max_turns": COUNT.schema,
    "bare": BOOLEAN.schema,
    "sessions": {
        "description": "Further sessions of the same user, by name.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": _SESSION,
    },
    "steps": list_schema(STEP_SCHEMA),
    "human": list_schema({"$ref": "#/$defs/act"}),
    "faults": list_schema({"$ref": "#/$defs/fault"}),
    "limits": mapping_schema({"seconds": SECONDS.schema, "dollars": DOLLARS.schema}),
    "expect": list_schema({"$ref": "#/$defs/expectation"}),
}
"""Top-level keys of a scenario file, each with the JSON Schema of its value."""


def load_scenario(path: Path) -> Scenario:
    """Load the scenario file at *path*. Blocks. Raises `ScenarioInvalid` with all errors, or if it is unreadable."""
    root = _root(path)
    errors = ParseErrors()
    fields = errors.fields(root, KEYS, "a scenario, with about, task, script and expect")
    for key in NEEDED if isinstance(root.value, dict) else ():
        if key not in fields:
            errors.add(root.line, f"the scenario has no key {key!r}; add it")
    reader = _ScenarioParser(path=path, errors=errors, fields=fields)
    scenario = reader.scenario()
    reader.check_names(scenario)
    errors.check(path)
    return scenario


def load_faults(path: Path, scenario: Scenario) -> Scenario:
    """Return *scenario* plus the faults and user actions in the additional file *path*. Raises `ScenarioInvalid`."""
    errors = ParseErrors()
    fields = errors.fields(_root(path), ("faults", "human"), "a mapping with faults")
    actions = [*parse_faults(fields.get("faults"), errors), *parse_user_actions(fields.get("human"), errors)]
    whole = attrs.evolve(scenario, actions=(*scenario.actions, *actions))
    _ScenarioParser(path=path, errors=errors, fields={}, script=script_data(scenario.script)).check_names(
        attrs.evolve(whole, actions=tuple(actions))
    )
    errors.check(path)
    return whole


def _root(path: Path) -> YamlNode:
    try:
        root = read_yaml(path.read_bytes().decode(), "the scenario")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ScenarioInvalid(path, (LineInvalid(1, f"cannot read the file: {reason}; pass a readable file"),)) from exc
    except LineInvalid as exc:
        raise ScenarioInvalid(path, (exc,)) from exc
    if root is None:
        raise ScenarioInvalid(path, (LineInvalid(1, "the file is empty; docs/scenarios.md lists its keys"),))
    return root


@attrs.define(eq=False, kw_only=True)
class _ScenarioParser:
    """Converts the top-level values of one scenario file to a `Scenario`; errors are collected in `errors`."""

    path: Path
    errors: ParseErrors
    fields: Mapping[str, YamlNode]
    script: Any = attrs.field(factory=dict)
    """The script (model replies by agent) as JSON data."""
    team: Any = None

    def scenario(self) -> Scenario:
        """Return the scenario of the file; an invalid value is replaced by a default, and its error is collected."""
        name = self.errors.attempt(YamlNode.text, self.fields.get("name"), self.path.stem)
        self.script, script = self.errors.attempt(self._script, self.fields.get("script"), ({}, ""))
        self.team = self.errors.attempt(self._team, self.fields.get("team"), None)
        limits, expectations = self._limits(), parse_expectations(self.fields.get("expect"), self.errors)
        if limits.dollars is not None:
            expectations = (*expectations, CostWithin(line=self.fields["limits"].line, at_most=limits.dollars))
        options = list(self._options())
        return Scenario(
            name=name,
            about=self.errors.attempt(YamlNode.text, self.fields.get("about"), ""),
            source=self.path,
            workspace=self._workspace(),
            task=self.errors.attempt(YamlNode.text, self.fields.get("task"), ""),
            script=script,
            options=tuple(word for option, _ in options for word in option),
            resume_options=tuple(word for option, is_shared in options if is_shared for word in option),
            team=self.team,
            settings=self.errors.attempt(self._settings, self.fields.get("settings"), {}),
            sessions=self._sessions(),
            steps=parse_steps(self.fields.get("steps"), self.errors),
            actions=(
                *parse_faults(self.fields.get("faults"), self.errors),
                *parse_user_actions(self.fields.get("human"), self.errors),
            ),
            limits=limits,
            expectations=expectations,
        )

    def check_names(self, scenario: Scenario) -> None:
        """Add an error for each agent or session in actions, steps or expectations that *scenario* cannot have."""
        self._check_sessions(scenario)
        known = known_agents(self.script, self.team)
        others = {name: known_agents(script_data(other.script), None) for name, other in scenario.sessions.items()}
        names = {qualify_agent(session, name) for session, agents in others.items() for name in agents.names}
        known = attrs.evolve(known, names=known.names | names)
        named = [(each.line, name) for each in scenario.expectations for name in expected_agents(each)]
        named += [(action.line, name) for action in scenario.actions for name in _agents_of(action)]
        for line, name in named:
            if not known.is_known(name):
                near = closest_match(name, known.names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(known.names))}"
                self.errors.add(line, f"no agent of the scenario has the name {name!r}; {hint}")

    def _check_sessions(self, scenario: Scenario) -> None:
        begun = [(step.line, step.to) for step in scenario.steps if step.action == "begin"]
        begun += [
            (action.line, action.session)
            for action in scenario.actions
            if isinstance(action, UserAction) and action.session
        ]
        for line, name in begun:
            if name not in scenario.sessions:
                self.errors.add(line, f"unknown session {name!r}; {known_names_hint(name, scenario.sessions)}")

    def _sessions(self) -> dict[str, SecondSession]:
        sessions: dict[str, SecondSession] = {}
        with self.errors.collecting():
            listed = self.fields.get("sessions")
            for name, node in ({} if listed is None else listed.fields("sessions by name")).items():
                fields = self.errors.fields(node, ("task", "script"), "a session, with task and script")
                for key in {"task", "script"} - fields.keys():
                    self.errors.add(node.line, f"the session {name!r} has no key {key!r}; add it")
                task = self.errors.attempt(YamlNode.text, fields.get("task"), "")
                _, script = self.errors.attempt(self._script, fields.get("script"), ({}, ""))
                sessions[name] = SecondSession(task=task, script=script)
        return sessions

    def _options(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Yield the command-line options for `coterie run`, each with True if `coterie resume` accepts it too."""
        for key, parse, is_shared in _OPTIONS:
            if key in self.fields:
                with self.errors.collecting():
                    yield parse(self.fields[key]), is_shared

    def _script(self, node: YamlNode) -> tuple[Any, str]:
        """Parse a script, given in the scenario or as a file path; return it as JSON data and as YAML text."""
        text = None
        if node.is_scalar():
            path = self.path.parent / node.text()
            if not path.is_file():
                raise node.refuse(f"the script file {path} does not exist; correct the path")
            node = _root(path)
            text = path.read_text()
        replies_by_agent = parse_replies(node)
        script = node.plain()
        if not {"main", DEFAULT} & set(replies_by_agent):
            raise node.refuse("the script has no replies for the lead; add the key main or default")
        all_replies = [reply for replies in replies_by_agent.values() for reply in replies]
        raised = {name for reply in all_replies for name in (*reply.asked, *reply.signals)}
        for reply in all_replies:
            for name in set(reply.until) - raised:
                self.errors.add(reply.line, f"{reply.name} waits for signal {name!r} that no reply raises; correct it")
        return script, text or msgspec.json.format(msgspec.json.encode(script), indent=1).decode()

    def _team(self, node: YamlNode) -> dict[str, Any]:
        if not node.is_scalar():
            node.fields("a team, or the path of a team file")
            team: dict[str, Any] = node.plain()
            return team
        path = self.path.parent / node.text()
        try:
            return tomllib.loads(path.read_text())
        except (OSError, ValueError) as exc:
            raise node.refuse(f"the team file {path} cannot be read; correct it: {exc}") from exc

    def _settings(self, node: YamlNode) -> dict[str, Any]:
        for key, value in _leaves(node):
            if key not in SETTINGS:
                raise value.refuse(f"unknown setting {key!r}; {known_names_hint(key, SETTINGS)}")
        settings: dict[str, Any] = node.plain()
        return settings

    def _limits(self) -> ScenarioLimits:
        fields = self.errors.fields(self.fields.get("limits"), ("seconds", "dollars"), "limits")
        amount = self.errors.attempt(DOLLARS.parse, fields["dollars"], None) if "dollars" in fields else None
        return ScenarioLimits(
            seconds=self.errors.attempt(YamlNode.seconds, fields.get("seconds"), ScenarioLimits().seconds),
            dollars=amount,
        )

    def _workspace(self) -> ScenarioWorkspace:
        fields = self.errors.fields(self.fields.get("workspace"), ("files", "home", "git"), "files, home and git")
        home = self.errors.attempt(_texts, fields.get("home"), _NO_TEXTS)
        if _SETTINGS_FILE in home and "settings" in self.fields:
            self.errors.add(
                fields["home"].line,
                f"{_SETTINGS_FILE} is in home, but the scenario has the key settings too; remove one of them",
            )
        files = self.errors.attempt(_texts, fields.get("files"), _NO_TEXTS)
        return ScenarioWorkspace(
            files=files, home=home, is_git=self.errors.attempt(BOOLEAN.parse, fields.get("git"), default=False)
        )


def script_data(script: str) -> Any:
    """Return *script*, the valid YAML text of a script (model replies by agent), as JSON data."""
    root = read_yaml(script, "the script")
    return {} if root is None else root.plain()


def _agents_of(action: ScenarioAction) -> list[str]:
    names = [] if action.when is None else action.when.pattern.agents()
    if isinstance(action, IoFault) and action.rule.target not in ("", ROOT):
        names.append(action.rule.target)
    if isinstance(action, ProcessFault) and action.target not in ("", ROOT, ZYGOTE, EVERYTHING, LEAD):
        names.append(action.target)
    if isinstance(action, UserAction) and action.action == "stop" and action.to is not None:
        names.append(action.to)
    return names


def _leaves(node: YamlNode, prefix: str = "") -> Iterator[tuple[str, YamlNode]]:
    for key, value in node.fields("settings").items():
        if isinstance(value.value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _texts(node: YamlNode) -> dict[str, str]:
    texts = {}
    for name, content in node.fields("texts by path").items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise content.refuse(f"the file {name!r} is outside the workspace; use a relative path without `..`")
        if not content.is_scalar():
            raise content.refuse_as("the text of a file")
        texts[name] = content.spelling
    return texts


def _flag(option: str) -> Callable[[YamlNode], tuple[str, ...]]:
    return lambda node: (option,) if BOOLEAN.parse(node) else ()


def _model(node: YamlNode) -> tuple[str, ...]:
    name = node.text()
    known = known_models()
    if known.find(name) is None:
        raise node.refuse(f"{name!r} is not a known model; {known_names_hint(name, [*known.aliases, *known.models])}")
    return "--model", name


_OPTIONS: tuple[tuple[str, Callable[[YamlNode], tuple[str, ...]], bool], ...] = (
    ("coordinator", _flag("--coordinator"), False),
    ("agent", lambda node: ("--agent", node.text()), False),
    ("model", _model, False),
    ("permission_mode", lambda node: ("--permission-mode", _MODE.parse(node)), True),
    ("budget_usd", lambda node: ("--max-budget-usd", str(DOLLARS.parse(node))), True),
    ("max_turns", lambda node: ("--max-turns", str(node.count())), True),
    ("bare", _flag("--bare"), True),
)
"""Scenario keys for options of `coterie run`: the parser of each, and True if `coterie resume` has the option too."""

SCENARIO_FILES = Path(__file__).parents[2] / "stories"


def shipped_files() -> list[Path]:
    """Return the paths of the scenario files shipped with Coterie, sorted by name."""
    return sorted(SCENARIO_FILES.glob(f"*{SUFFIX}"))


def find_scenario(name: str) -> Path:
    """Return the path *name*, or the file of the shipped scenario *name*. Raises `ConfigInvalid` if there is none."""
    path = Path(name)
    if path.suffix or len(path.parts) > 1:
        if path.is_file():
            return path
        raise ConfigInvalid("scenario", f"there is no file {name}; pass a file or a name of `coterie scenario list`")
    names = {path.stem: path for path in shipped_files()}
    if name not in names:
        raise ConfigInvalid("scenario", f"unknown scenario {name!r}; {did_you_mean(name, names)}")
    return names[name]


def load_shipped() -> list[Scenario]:
    """Load all scenarios shipped with Coterie, sorted by name. Blocks. Raises `ScenarioInvalid`."""
    return [load_scenario(path) for path in shipped_files()]
