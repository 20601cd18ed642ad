"""Permissions of one agent: the verdict on each tool call, and the rules that a prompt proposes to the user.

The model gets the reason of a denial as the result of the call, so that it can continue without the call. Tools are
never removed from a request instead, because agents share the cached prefix that contains all tools.
"""

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.permissions.commands.command_parser import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_pattern import WRAPPERS, CommandPattern, opaque_reason
from coterie.agents.permissions.name_patterns import DomainPattern
from coterie.agents.permissions.path_pattern import PathPattern, is_inside, is_protected
from coterie.agents.permissions.rules import RoleLimit, Rule, ToolCallFacts, matching_rules
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt, Question, Verdict, Vote
from coterie.agents.tools.files.directory_walk import display_path
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY, ExternalInput, Tool, Workspace
from coterie.agents.tools.web.web_fetch import WebFetchInput

HOOK = "hook"
"""Value of `by` in a verdict that was decided by the vote of a hook."""
SUBJECT_ARGUMENTS = frozenset({"command", "file_path", "notebook_path", "path", "url"})
"""Names of tool arguments that a prompt shows as the subject of the call, not as its details."""
HAVE_SUBCOMMANDS = frozenset(
    {
        *("git", "gh", "hg", "svn", "npm", "pnpm", "yarn", "bun", "deno", "cargo", "go", "rustup", "dotnet", "mvn"),
        *("gradle", "make", "just", "task", "pip", "pip3", "pipx", "uv", "poetry", "pdm", "conda", "hatch", "tox"),
        "nox",
        *("docker", "podman", "kubectl", "helm", "terraform", "apt", "apt-get", "brew", "dnf", "apk", "systemctl"),
        *("bundle", "gem", "rails", "composer", "php", "mix", "aws", "gcloud", "az", "coterie"),
    }
)
"""Programs whose second word selects the action, such as `git push`, so that proposed rules contain this word."""
ONLY_EXACT = WRAPPERS | {
    *("python", "python3", "node", "perl", "ruby", "php", "lua", "awk", "sed", "npx", "bunx", "uvx", "source", "."),
    *("rm", "rmdir", "mv", "dd", "shred", "truncate", "ln", "chmod", "chown", "kill", "pkill", "killall", "tee"),
    *("curl", "wget", "scp", "rsync", "nc", "cd", "export", "alias", "set", "shopt", "enable", "hash"),
}
"""Programs that can run anything, or destroy or send data: a proposed rule covers only exactly this command."""

_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


@attrs.frozen(kw_only=True)
class Permissions:
    """Mode and rules of one agent; `parent` adds those of all agents above it.

    Modes: "default" allows reading in the workspace and tools that affect only the session, and asks for the rest.
    "acceptEdits" also allows edits in the workspace. "plan" denies edits and commands. "dontAsk" denies where "default"
    asks. "bypassPermissions" allows everything that no rule or role limit denies, unless a hook wants a prompt.
    """

    mode: Mode = "default"
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    limits: tuple[RoleLimit, ...] = ()
    parent: "Permissions | None" = None
    """Permissions of the agent's parent, which the agent cannot exceed; None for an agent without a parent."""

    def within(self, parent: "Permissions") -> "Permissions":
        """Return these permissions with *parent* as a limit: no verdict is milder than that of *parent*.

        Role limits of *parent*, which restrict the tools of one agent type, are not inherited.
        """
        outer = parent if self.parent is None else self.parent.within(parent)
        return attrs.evolve(self, parent=attrs.evolve(outer, limits=()))

    def evaluate(
        self,
        tool: Tool,
        arguments: Any,
        workspace: Workspace,
        granted: Sequence[Rule] = (),
        vote: Vote | None = None,
    ) -> Verdict:
        """Return the verdict on one tool call.

        *granted* are rules that the user granted at prompts; *vote* is the combined vote of hooks. Follows links and
        searches directories in their current state. Raises `ToolFailed` if a path or URL in *arguments* is invalid.
        """
        call = ToolCallFacts.of(tool, arguments, workspace)
        if limit := next((limit for limit in self.limits if limit.denies(call)), None):
            return Denied(by=limit.name, reason=limit.reason)
        return _strictest([layer._evaluate_own(call, workspace, granted, vote) for layer in self.layers()])  # noqa: SLF001 - same class

    def layers(self) -> Iterator["Permissions"]:
        """Yield these permissions, then those of the parent, and so on up to the first agent."""
        yield self
        if self.parent is not None:
            yield from self.parent.layers()

    def _evaluate_own(
        self, call: ToolCallFacts, workspace: Workspace, granted: Sequence[Rule], vote: Vote | None
    ) -> Verdict:
        if (denied := self._denied(call, workspace)) is not None:
            return denied
        if vote is not None and vote.wants == "ask":
            return self._ask(call, None, (), vote)
        if self.mode == "bypassPermissions":
            return Allowed()
        verdict = self._evaluate_undenied(call, workspace, granted)
        # An ask rule requires the user; only where just the mode would ask, a hook can allow the call.
        is_open = isinstance(verdict, NeedsPrompt) and verdict.by == self.mode
        return Allowed(by=HOOK) if vote is not None and is_open else verdict

    def _evaluate_undenied(self, call: ToolCallFacts, workspace: Workspace, granted: Sequence[Rule]) -> Verdict:
        rule = next((rule for rule in self.ask if rule.may_be(call)), None)
        if rule is not None and not _is_waived(call, granted):
            return self._ask(call, rule, ())
        if self._is_allowed_by_mode(call, workspace):
            return Allowed()
        if call.command is not None and workspace.sandbox is not None and workspace.sandbox.asks_no_more:
            return Allowed(by="sandbox")
        rules = (*granted, *self.allow)
        if used := matching_rules(rules, call):
            return Allowed(by=", ".join(rule.text for rule in used))
        return self._ask(call, None, rules)

    def _denied(self, call: ToolCallFacts, workspace: Workspace) -> Denied | None:
        if rule := next((rule for rule in self.deny if rule.may_be(call)), None):
            return Denied(by=rule.text, reason=f"The rule {rule.text} denies this call.")
        if self.mode == "bypassPermissions":
            return None
        edited = call.paths if call.tool.access == "edit" else ()
        closed = (path for path in edited if is_protected(path, call.root) and not _is_open(path, workspace))
        if path := next(closed, None):
            reason = "is protected: it affects later runs, so only the user may change it."
            return Denied(by="protected path", reason=f"{display_path(path, call.root)} {reason}")
        # Planners may write too in the directory that the agents of the session share.
        is_shared = bool(edited) and all(_is_scratch(path, workspace) for path in edited)
        if self.mode == "plan" and call.tool.access in ("edit", "run") and not is_shared:
            reason = f"In plan mode you may only read; {call.tool.name} has to wait until your plan is approved."
            return Denied(by=self.mode, reason=reason)
        return None

    def _is_allowed_by_mode(self, call: ToolCallFacts, workspace: Workspace) -> bool:
        """True if the call needs no rule and no prompt, because the mode or the kind of tool allows it."""
        if call.tool.access in ("session", "spawn"):
            return True
        is_for_files = call.tool.access in ("read", "edit") and bool(call.paths)
        if is_for_files and all(_is_open(path, workspace) for path in call.paths):
            return True
        if call.tool.access == "read":
            own = (workspace.scratch / RESULTS_DIRECTORY, workspace.scratch / JOBS_DIRECTORY)
            places = (call.root, *own, *workspace.readable)
            return all(any(is_inside(path, place) for place in places) for path in call.paths)
        if call.tool.access == "edit" and self.mode == "acceptEdits":
            return all(is_inside(path, call.root) for path in call.paths)
        return False

    def _ask(
        self, call: ToolCallFacts, rule: Rule | None, allow: Sequence[Rule], vote: Vote | None = None
    ) -> NeedsPrompt | Denied:
        # An answer for the whole session would not keep the hook from asking again.
        rules = () if vote is not None else proposed_rules(call, allow, is_exact=rule is not None)
        question = Question(
            tool=call.tool.name,
            subject=_subject(call),
            details=_details(call),
            reason=_prompt_reason(call, rule, self.mode)
            if vote is None
            else f"a hook asks for it: {vote.reason or 'it gave no reason'}",
            rules=tuple(each.text for each in rules),
            remedy=_remedy(call, rules if rule is None else ()),
        )
        by = rule.text if rule else self.mode if vote is None else HOOK
        if self.mode == "dontAsk":
            return Denied(by=by, reason=question.unanswered())
        return NeedsPrompt(by=by, question=question, rules=rules)


def _is_open(path: Path, workspace: Workspace) -> bool:
    """True if the agent may always read and write *path*: in its memory, or in the directory that agents share."""
    is_memory = workspace.memory is not None and workspace.memory.holds(path)
    return is_memory or _is_scratch(path, workspace)


def _is_scratch(path: Path, workspace: Workspace) -> bool:
    return workspace.shared is not None and is_inside(path, workspace.shared)


def _is_waived(call: ToolCallFacts, granted: Sequence[Rule]) -> bool:
    """True if the user has granted rules without wildcards for this call; then ask rules do not ask about it again."""
    return bool(matching_rules([rule for rule in granted if rule.names(call)], call))


def _subject(call: ToolCallFacts) -> str:
    if isinstance(call.arguments, WebFetchInput):
        return call.arguments.url
    return call.command.text if call.command else ", ".join(display_path(path, call.root) for path in call.paths)


def _details(call: ToolCallFacts) -> dict[str, str]:
    if isinstance(call.arguments, ExternalInput):
        return {name: str(value) for name, value in call.arguments.values.items()}
    defaults = {field.name: field.default for field in attrs.fields(type(call.arguments))}
    given = {name: getattr(call.arguments, name) for name in defaults if name not in SUBJECT_ARGUMENTS}
    return {name: str(value) for name, value in given.items() if value != defaults[name]}


def _prompt_reason(call: ToolCallFacts, rule: Rule | None, mode: Mode) -> str:
    if rule is not None:
        return f"the rule {rule.text} asks for every such call"
    if call.command is not None and (reason := opaque_reason(call.command)):
        return f"the commands that would run are unknown before it runs: it has {reason}"
    if outside := next((path for path in call.paths if not is_inside(path, call.root)), None):
        return f"{display_path(outside, call.root)} is outside {call.root}"
    return f"no rule allows it and the mode {mode} does not"


def _remedy(call: ToolCallFacts, rules: Sequence[Rule]) -> str:
    is_edit_inside = call.tool.access == "edit" and all(is_inside(path, call.root) for path in call.paths)
    mode = "acceptEdits" if is_edit_inside and rules else "bypassPermissions"
    ways = [*([f"the rule {', '.join(rule.text for rule in rules)}"] if rules else []), f"the mode {mode}"]
    return " or ".join(ways)


def _strictest(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts of an agent and its ancestors: a denial wins over a prompt, and a prompt over an allowance.

    Several prompts become one prompt.
    """
    if denied := next((verdict for verdict in verdicts if isinstance(verdict, Denied)), None):
        return denied
    asks = [verdict for verdict in verdicts if isinstance(verdict, NeedsPrompt)]
    if not asks:
        return next((verdict for verdict in verdicts if verdict != Allowed()), verdicts[0])
    is_grantable = all(verdict.rules for verdict in asks)
    rules = tuple(dict.fromkeys(rule for verdict in asks for rule in verdict.rules)) if is_grantable else ()
    question = attrs.evolve(asks[0].question, rules=tuple(rule.text for rule in rules))
    return attrs.evolve(asks[0], question=question, rules=rules)


def proposed_rules(call: ToolCallFacts, allow: Sequence[Rule] = (), *, is_exact: bool = False) -> tuple[Rule, ...]:
    """Return rules that a prompt offers to the user: together with *allow*, they allow *call* and similar calls.

    With *is_exact*, they allow no other command or path. Empty if no rule can cover the call.
    """
    if call.command is not None:
        return _for_commands(call.command, allow, is_exact=is_exact)
    if call.host is not None:
        text = f"WebFetch(domain:{call.host})"
        return (Rule(tool=call.tool.name, subject=DomainPattern(call.host), text=text),)
    if call.paths:
        return tuple(_for_path(call, path, is_exact=is_exact) for path in dict.fromkeys(call.paths))
    return (Rule(tool=call.tool.name, text=call.tool.name),)


def _for_commands(line: CommandLine, allow: Sequence[Rule], *, is_exact: bool) -> tuple[Rule, ...]:
    commands = [command for command in line.commands if command.words]
    if opaque_reason(line) is not None or line.substituted or not all(command.is_plain for command in line.commands):
        return ()
    if not all(word.is_literal for command in commands for word in command.words):
        return ()
    missing = (command for command in commands if not any(rule.covers_command(command) for rule in allow))
    return tuple(dict.fromkeys(_for_command(command, is_exact=is_exact) for command in missing))


def _for_command(command: SimpleCommand, *, is_exact: bool) -> Rule:
    words = tuple(word.text for word in command.words)
    has_subcommand = command.name in HAVE_SUBCOMMANDS
    if is_exact or command.name in ONLY_EXACT or (has_subcommand and not any(map(_SUBCOMMAND.fullmatch, words[1:2]))):
        pattern = CommandPattern(words, is_open=False)
    else:
        pattern = CommandPattern(words[: 2 if has_subcommand else 1], is_open=True)
    return Rule(tool="Bash", subject=pattern, text=f"Bash({pattern})")


def _for_path(call: ToolCallFacts, path: Path, *, is_exact: bool) -> Rule:
    tool = "Edit" if call.tool.access == "edit" else "Read"
    is_inside = path.is_relative_to(call.root)
    is_wide = call.tool.access == "edit" and is_inside and path.parent != call.root and not is_exact
    target = path.parent if is_wide else path
    name = str(target.relative_to(call.root) if is_inside else target)
    text = glob.escape(name) + "/**" * is_wide
    # A name without a slash would match in every directory.
    text = text if "/" in text else f"./{text}"
    return Rule(tool=tool, subject=PathPattern.exactly(target), text=f"{tool}({text})")
