"""`coterie approvals`: lists open approvals and answers them."""

import sys
import time

import click
import msgspec
import trio
from click.shell_completion import CompletionItem

from coterie.errors import ConfigInvalid
from coterie.orchestrator.approvals.approval_policy import describe_state
from coterie.orchestrator.approvals.queries import ListedApproval, UnreadableApproval, find_approvals
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, escape_invisible, one_line, open_output, sanitize
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import DecideApproval
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import SessionDirectory
from coterie.suggestions import did_you_mean

SHOWN = 80
"""Characters of a plan's first line, or of a call, that a list shows."""
LONGEST_FEEDBACK = 20_000
"""Characters: more than anybody types, and few enough for a frame."""


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The open ones, of the session that was named before or of all that run."""
    try:
        every = [each for each in find_approvals(ctx.params.get("session")) if isinstance(each, ListedApproval)]
    except ConfigInvalid:
        return []
    waiting = (each.approval for each in every if each.approval.is_open)
    return [CompletionItem(each.id, help=each.subject) for each in waiting if each.id.startswith(incomplete)]


_id = click.argument("id_", metavar="ID", shell_complete=_complete)
_session = click.option(
    "--session", "-s", metavar="SESSION", shell_complete=complete_session, help="The session; one of those that run."
)
_json = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/approvals.md.")


@click.group()
def approvals() -> None:
    """Show what agents wait for your yes to, and answer."""


@approvals.command("list")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--all", "is_all", is_flag=True, help="List those that are decided or withdrawn, too.")
@_json
def list_open_approvals(*, session: str | None, is_all: bool, is_json: bool) -> None:
    """List the open approvals of SESSION, or of all sessions that run. Ends with 1 if a file cannot be read."""
    every = list(find_approvals(session))
    unread = [each for each in every if isinstance(each, UnreadableApproval)]
    found = [each for each in every if isinstance(each, ListedApproval) and (is_all or each.approval.is_open)]
    with open_output():
        if is_json:
            click.echo(msgspec.json.encode({"approvals": [each.row() for each in found]}))
        for each in () if is_json else found:
            click.echo(_line(each))
        for file in unread:
            click.echo(sanitize(str(file)), err=True)
        if not every and not is_json:
            click.echo("nobody has asked for an approval", err=True)
        elif not found and not is_json:
            click.echo("nobody waits for an approval; --all lists those of before", err=True)
    sys.exit(ExitCode.FAILED if unread else ExitCode.DONE)


@approvals.command()
@_id
@_session
@_json
def show(*, id_: str, session: str | None, is_json: bool) -> None:
    """Show one approval: the whole plan, or the call."""
    found = _find(id_, session)
    with open_output():
        click.echo(msgspec.json.encode(found.row()) if is_json else _details(found))


@approvals.command()
@_id
@click.option("--feedback", "-f", default="", metavar="TEXT", help="What the agent is told besides.")
@_session
@_json
def approve(*, id_: str, feedback: str, session: str | None, is_json: bool) -> None:
    """Let the agent begin with its plan, or make the call, once."""
    _decide(DecideApproval(id=id_, approve=True, feedback=_checked(feedback)), session, is_json=is_json)


@approvals.command()
@_id
@click.option("--feedback", "-f", default="", metavar="TEXT", help="What is wrong, and what would be right. Required.")
@_session
@_json
def reject(*, id_: str, feedback: str, session: str | None, is_json: bool) -> None:
    """Let the agent plan again, or go on without the call."""
    if not feedback.strip():
        raise UsageRefused("say with --feedback what is wrong, and what would be right: the agent is told nothing else")
    _decide(DecideApproval(id=id_, approve=False, feedback=_checked(feedback)), session, is_json=is_json)


def _checked(feedback: str) -> str:
    if len(feedback) > LONGEST_FEEDBACK:
        raise UsageRefused(f"the feedback has {len(feedback):,} characters; at most {LONGEST_FEEDBACK:,} are passed on")
    return feedback


def _decide(request: DecideApproval, name: str | None, *, is_json: bool) -> None:
    session = _find(request.id, None, is_to_decide=True).session if name is None else SessionDirectory.find(name)
    if (root := find_root(session)) is None:
        raise UsageRefused(
            f"session {session.id} does not run: the answer would reach nobody; `coterie resume` it first"
        )
    try:
        trio.run(send_request, root, request)
    except ConfigInvalid as exc:
        raise UsageRefused(exc.reason) from exc
    state = "approved" if request.approve else "rejected"
    with open_output():
        facts = {"session": session.id, "id": request.id, "state": state}
        click.echo(msgspec.json.encode(facts) if is_json else f"{state} {request.id} of session {session.id}")


def _find(id_: str, name: str | None, *, is_to_decide: bool = False) -> ListedApproval:
    """The one of that id; where it *is_to_decide*, one that is open goes before those that are not."""
    every = [each for each in find_approvals(name) if isinstance(each, ListedApproval)]
    found = [each for each in every if each.approval.id == id_]
    if is_to_decide and len(found) > 1:
        found = [each for each in found if each.approval.is_open] or found
    if len(found) > 1:
        sessions = ", ".join(each.session.id for each in found)
        raise UsageRefused(f"{id_} was asked for in {len(found)} sessions, {sessions}; say which with --session")
    if not found:
        where = f"session {name}" if name else "the sessions that run"
        hint = did_you_mean(id_, {each.approval.id for each in every})
        raise UsageRefused(f"there is no approval {id_!r} in {where}; {hint}")
    return found[0]


def _line(found: ListedApproval) -> str:
    approval, claim = found.approval, found.approval.claim
    changed = "  (its file was changed)" if found.doubt else ""
    facts = f"{found.session.id}  {approval.id:<14}  {approval.state:<9}  {one_line(claim.agent, SHOWN):<12}"
    return f"{facts}  {one_line(approval.subject, SHOWN)}{changed}"


def _details(found: ListedApproval) -> str:
    approval, claim = found.approval, found.approval.claim
    asked = claim.question
    facts = {
        "session": found.session.id,
        "agent": f"{claim.agent}, start {claim.incarnation}",
        "asked": _moment(approval.asked_at),
        "state": describe_state(approval),
        "feedback": "" if approval.state == "withdrawn" else approval.feedback,
        "files": ", ".join(claim.files),
        "rule": ", ".join(claim.paths),
        "call": "" if asked is None else f"{asked.tool} {asked.subject}",
        "because": "" if asked is None else asked.reason,
        "doubt": found.doubt or "",
    }
    lines = [approval.id, *(f"{name}: {escape_invisible(fact)}" for name, fact in facts.items() if fact)]
    if asked is not None:
        lines += [f"\n{escape_invisible(name)}:\n{escape_invisible(text)}" for name, text in asked.details.items()]
    return sanitize("\n".join([*lines, *(["", escape_invisible(claim.plan)] if claim.plan else [])]))


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
