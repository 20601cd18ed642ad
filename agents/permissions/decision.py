"""What an agent may do: facts decided outside the prompt, and the verdict over one call.

A denied call is answered with the reason, so that the model can do without it. Tools are never taken out of the
request for it: prefixes stay shared.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from coterie.agents.mcp.naming import any_means
from coterie.agents.permissions.paths import is_inside, is_protected
from coterie.agents.permissions.proposal import proposed_rules
from coterie.agents.permissions.rules import EVERY_TOOL, Call, Rule, covering
from coterie.agents.permissions.wrappers import obscurity
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY, ForeignInput, Tool, Workspace
from coterie.agents.tools.walk import shown
from coterie.agents.tools.web_fetch import WebFetchInput

Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)
HOOK = "hook"
"""Who decides where a hook's vote counts."""
SUBJECT_ARGUMENTS = frozenset({"command", "file_path", "notebook_path", "path", "url"})
"""What a question shows as its subject."""


@attrs.frozen(kw_only=True)
class RoleLimit:
    """Tools that an agent may not use because of what it is there for. It belongs to one agent, not to its children."""

    name: str
    reason: str
    """Why, in words for the model."""
    allowed: frozenset[str] | None = None
    """The only tools that may be used; None for all."""
    denied: frozenset[str] = frozenset()
    only: tuple[Rule, ...] = ()
    """Of the tools that these rules name, the calls that may be made."""

    def denies(self, call: Call) -> bool:
        """Whether *call* may not be made."""
        name = call.tool.name
        if EVERY_TOOL in self.denied or any_means(self.denied, name):
            return True
        if self.allowed is not None and not any_means(self.allowed, name):
            return True
        narrowing = [rule for rule in self.only if rule.tool == name]
        return bool(narrowing) and not covering(narrowing, call)


@attrs.frozen(kw_only=True)
class Vote:
    """What a hook wants of a call. It denies none by this, and opens none that a rule, a limit or a mode denies."""

    wants: Literal["allow", "ask"]
    """allow: where the mode alone would ask the user, there is no need to. ask: the user is asked in any case."""
    reason: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """What the user is asked before a call is made."""

    tool: str
    subject: str
    """The command, the paths, or the address; otherwise nothing."""
    details: Mapping[str, str] = attrs.field(factory=dict)
    """The other arguments of the call that are not as usual, by name."""
    reason: str
    """Why the user is asked."""
    rules: tuple[Rule, ...]
    """What an answer for the whole session would allow; empty if it can only be allowed once."""
    remedy: str
    """What the user can do to allow such calls beforehand, as in "allow it with ..."."""
    agent: str = ""
    """Who wants to make the call; filled in by the root."""

    def unanswered(self) -> str:
        """The denial, in words for the model, where nobody can be asked."""
        return (
            f"{self.tool} needs the user's permission here, because {self.reason}, and nobody can be asked. "
            f"The user could allow it with {self.remedy}."
        )


@attrs.frozen(kw_only=True)
class Allowed:
    """The call may be made."""

    by: str | None = None
    """The rules that allow it, or who; None if the mode does."""


@attrs.frozen(kw_only=True)
class Denied:
    """The call may not be made."""

    by: str
    """The rule, limit or mode that denies it, or who."""
    reason: str
    """In words for the model."""


@attrs.frozen(kw_only=True)
class Asks:
    """The call may be made if the user says so."""

    by: str
    """The rule or mode that asks."""
    question: Question


Verdict = Allowed | Denied | Asks


@attrs.frozen(kw_only=True)
class Permissions:
    """The mode and the rules of one agent, and through `within` those of its parents.

    default: tools that read may read inside the workspace; the rest is asked. acceptEdits: tools that edit may edit
    there too. plan: only reading. dontAsk: as default, but what would be asked is denied. bypassPermissions:
    everything that no rule and no role limit denies.
    """

    mode: Mode = "default"
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    limits: tuple[RoleLimit, ...] = ()
    parent: "Permissions | None" = None
    """What this agent's own permissions cannot exceed."""

    def within(self, parent: "Permissions") -> "Permissions":
        """These permissions, but no call is judged more mildly than by *parent*, whose role limits stay its own."""
        outer = parent if self.parent is None else self.parent.within(parent)
        return attrs.evolve(self, parent=attrs.evolve(outer, limits=()))

    def judge(
        self,
        tool: Tool,
        arguments: Any,
        workspace: Workspace,
        granted: Sequence[Rule] = (),
        vote: Vote | None = None,
    ) -> Verdict:
        """The verdict over one call; *granted* is what the user has allowed since, *vote* what hooks want.

        Links are followed and directories looked into, as they are now. Raises `ToolFailed` as `touches` does.
        """
        call = Call.of(tool, arguments, workspace)
        if limit := next((limit for limit in self.limits if limit.denies(call)), None):
            return Denied(by=limit.name, reason=limit.reason)
        return _strictest([layer._judge(call, workspace, granted, vote) for layer in self._layers()])  # noqa: SLF001 - of the same class

    def _layers(self) -> Iterator["Permissions"]:
        yield self
        if self.parent is not None:
            yield from self.parent._layers()  # noqa: SLF001 - of the same class

    def _judge(self, call: Call, workspace: Workspace, granted: Sequence[Rule], vote: Vote | None) -> Verdict:
        if (denied := self._denied(call, workspace)) is not None:
            return denied
        if vote is not None and vote.wants == "ask":
            return self._ask(call, None, (), vote)
        if self.mode == "bypassPermissions":
            return Allowed()
        verdict = self._judge_undenied(call, workspace, granted)
        # A rule that asks means the user; only where nothing but the mode asks, a hook can say yes instead.
        is_open = isinstance(verdict, Asks) and verdict.by == self.mode
        return Allowed(by=HOOK) if vote is not None and is_open else verdict

    def _judge_undenied(self, call: Call, workspace: Workspace, granted: Sequence[Rule]) -> Verdict:
        rule = next((rule for rule in self.ask if rule.may_be(call)), None)
        if rule is not None and not _is_waived(call, granted):
            return self._ask(call, rule, ())
        if self._is_free(call, workspace):
            return Allowed()
        if call.command is not None and workspace.sandbox is not None and workspace.sandbox.asks_no_more:
            return Allowed(by="sandbox")
        rules = (*granted, *self.allow)
        if used := covering(rules, call):
            return Allowed(by=", ".join(rule.text for rule in used))
        return self._ask(call, None, rules)

    def _denied(self, call: Call, workspace: Workspace) -> Denied | None:
        if rule := next((rule for rule in self.deny if rule.may_be(call)), None):
            return Denied(by=rule.text, reason=f"The rule {rule.text} denies this call.")
        if self.mode == "bypassPermissions":
            return None
        if path := next((path for path in call.paths if _is_closed(path, call, workspace)), None):
            reason = "is protected: what stands there decides over later runs, so only the user may change it."
            return Denied(by="protected path", reason=f"{shown(path, call.root)} {reason}")
        if self.mode == "plan" and call.tool.access in ("edit", "run") and not _is_shared(call, workspace):
            reason = f"In plan mode you may only read; {call.tool.name} has to wait until your plan is approved."
            return Denied(by=self.mode, reason=reason)
        return None

    def _is_free(self, call: Call, workspace: Workspace) -> bool:
        """Whether the mode lets the call happen by itself."""
        if call.tool.access in ("session", "spawn"):
            return True
        if (
            call.tool.access in ("read", "edit")
            and call.paths
            and all(_is_open(path, workspace) for path in call.paths)
        ):
            return True
        if call.tool.access == "read":
            own = (workspace.scratch / RESULTS_DIRECTORY, workspace.scratch / JOBS_DIRECTORY)
            places = (call.root, *own, *workspace.readable)
            return all(any(is_inside(path, place) for place in places) for path in call.paths)
        if call.tool.access == "edit" and self.mode == "acceptEdits":
            return all(is_inside(path, call.root) for path in call.paths)
        return False

    def _ask(self, call: Call, rule: Rule | None, allow: Sequence[Rule], vote: Vote | None = None) -> Asks | Denied:
        # A yes for the whole session would not keep the hook from asking again.
        rules = () if vote is not None else proposed_rules(call, allow, is_exact=rule is not None)
        question = Question(
            tool=call.tool.name,
            subject=_subject(call),
            details=_details(call),
            reason=_why(call, rule, self.mode)
            if vote is None
            else f"a hook asks for it: {vote.reason or 'it gave no reason'}",
            rules=rules,
            remedy=_remedy(call, rules if rule is None else ()),
        )
        by = rule.text if rule else self.mode if vote is None else HOOK
        if self.mode == "dontAsk":
            return Denied(by=by, reason=question.unanswered())
        return Asks(by=by, question=question)


def _is_closed(path: Path, call: Call, workspace: Workspace) -> bool:
    return call.tool.access == "edit" and is_protected(path, call.root) and not _is_open(path, workspace)


def _is_shared(call: Call, workspace: Workspace) -> bool:
    """Whether *call* edits only what the agents of the session share: planners, too, put there what they find."""
    return call.tool.access == "edit" and bool(call.paths) and all(_is_scratch(path, workspace) for path in call.paths)


def _is_open(path: Path, workspace: Workspace) -> bool:
    """Whether *path* is for agents to read and write: their memory, or what they share."""
    return _is_memory(path, workspace) or _is_scratch(path, workspace)


def _is_scratch(path: Path, workspace: Workspace) -> bool:
    return workspace.shared is not None and is_inside(path, workspace.shared)


def _is_memory(path: Path, workspace: Workspace) -> bool:
    return workspace.memory is not None and workspace.memory.holds(path)


def _is_waived(call: Call, granted: Sequence[Rule]) -> bool:
    """Whether the user, asked about this very call, has said that there is no need to ask again."""
    return bool(covering([rule for rule in granted if rule.names(call)], call))


def _subject(call: Call) -> str:
    if isinstance(call.arguments, WebFetchInput):
        return call.arguments.url
    return call.command.text if call.command else ", ".join(shown(path, call.root) for path in call.paths)


def _details(call: Call) -> dict[str, str]:
    if isinstance(call.arguments, ForeignInput):
        return {name: str(value) for name, value in call.arguments.values.items()}
    usual = {field.name: field.default for field in attrs.fields(type(call.arguments))}
    given = {name: getattr(call.arguments, name) for name in usual if name not in SUBJECT_ARGUMENTS}
    return {name: str(value) for name, value in given.items() if value != usual[name]}


def _why(call: Call, rule: Rule | None, mode: Mode) -> str:
    if rule is not None:
        return f"the rule {rule.text} says so"
    if call.command is not None and (obscure := obscurity(call.command)):
        return f"what the command runs cannot be told before it runs: it has {obscure}"
    if outside := next((path for path in call.paths if not is_inside(path, call.root)), None):
        return f"{shown(outside, call.root)} is outside {call.root}"
    return f"no rule allows it and the mode {mode} does not"


def _remedy(call: Call, rules: Sequence[Rule]) -> str:
    is_edit_inside = call.tool.access == "edit" and all(is_inside(path, call.root) for path in call.paths)
    mode = "acceptEdits" if is_edit_inside and rules else "bypassPermissions"
    ways = [*([f"the rule {', '.join(rule.text for rule in rules)}"] if rules else []), f"the mode {mode}"]
    return " or ".join(ways)


def _strictest(verdicts: Sequence[Verdict]) -> Verdict:
    """A denial before a question before a permission; questions become one."""
    if denied := next((verdict for verdict in verdicts if isinstance(verdict, Denied)), None):
        return denied
    asks = [verdict for verdict in verdicts if isinstance(verdict, Asks)]
    if not asks:
        return next((verdict for verdict in verdicts if verdict != Allowed()), verdicts[0])
    rules = tuple(dict.fromkeys(rule for verdict in asks for rule in verdict.question.rules))
    is_grantable = all(verdict.question.rules for verdict in asks)
    return attrs.evolve(asks[0], question=attrs.evolve(asks[0].question, rules=rules if is_grantable else ()))
