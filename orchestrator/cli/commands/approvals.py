"""`coterie approvals`: lists approval requests and answers them."""

import sys

import attrs
import click
import trio
from click.shell_completion import CompletionItem

from coterie.errors import ConfigInvalid
from coterie.orchestrator.approvals.approval_policy import describe_state
from coterie.orchestrator.approvals.store import Approval, read_approvals
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import (
    ExitCode,
    UsageRefused,
    escape_invisible,
    format_time,
    one_line,
    print_result,
    sanitize,
)
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import DecideApproval
from coterie.orchestrator.session.root_lock import find_living_roots, find_root
from coterie.session_directory import SessionDirectory
from coterie.suggestions import did_you_mean

SHOWN = 80
"""Maximum characters of an agent's name, and of the first line of a plan or a tool call, in the list."""
LONGEST_FEEDBACK = 20_000
"""Maximum characters of feedback, so that the request to the session's process fits into one socket message."""


@attrs.frozen(kw_only=True)
class ListedApproval:
    """An approval request, decided or not, and the session it belongs to."""

    session: SessionDirectory
    approval: Approval
    doubt: str | None = None
    """Reason why the stored file of the request is not trusted; None if it is trusted."""

    def row(self) -> dict[str, object]:
        """Return the approval as a JSON object; docs/approvals.md describes its members."""
        approval, claim = self.approval, self.approval.claim
        asked, shown = claim.question, ("tool", "subject", "details", "reason")
        return {
            "session": self.session.id,
            "id": approval.id,
            "what": claim.what,
            "agent": claim.agent,
            "incarnation": claim.incarnation,
            "approver": claim.approver,
            "subject": approval.subject,
            "plan": claim.plan,
            "files": claim.files,
            "paths": claim.paths,
            "question": None if asked is None else {name: getattr(asked, name) for name in shown},
            "asked_at": approval.asked_at,
            "state": approval.state,
            "by": approval.by,
            "feedback": approval.feedback,
            "decided_at": approval.decided_at,
            "is_past": approval.is_past,
            "doubt": self.doubt,
        }


def _find_all(name: str | None) -> tuple[list[ListedApproval], list[str]]:
    """Return the approval requests of session *name* or of all running ones, by session and age, and error texts.

    Each error text names a file that cannot be read. Raises `ConfigInvalid` if session *name* does not exist.
    """
    found: list[ListedApproval] = []
    unreadable: list[str] = []
    for id_ in sorted(find_living_roots()) if name is None else [SessionDirectory.find(name).id]:
        try:
            session = SessionDirectory.find(id_)
            records = read_approvals(session)
        except ConfigInvalid as exc:
            unreadable.append(str(exc))
            continue
        for kept in records:
            if kept.approval is None:
                unreadable.append(f"{kept.path}: {kept.doubt}")
            else:
                found.append(ListedApproval(session=session, approval=kept.approval, doubt=kept.doubt))
    return found, unreadable


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: ids of undecided requests in the session of `--session`, else in all running sessions."""
    try:
        every, _ = _find_all(ctx.params.get("session"))
    except ConfigInvalid:
        return []
    waiting = (each.approval for each in every if each.approval.is_open)
    return [CompletionItem(each.id, help=each.subject) for each in waiting if each.id.startswith(incomplete)]


_id = click.argument("id_", metavar="ID", shell_complete=_complete)
_session = click.option(
    "--session",
    "-s",
    metavar="ID",
    shell_complete=complete_session,
    help="Session of the request: its id, or first characters of it; required if several running sessions have a "
    "request with this ID.  [default: search all running sessions]",
)
_json = json_option("approvals")


@click.group()
def approvals() -> None:
    """List and answer the requests of agents that wait for your approval of a plan or of a tool call."""


@approvals.command("list", short_help="List the requests that wait for an answer.")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--all", "is_all", is_flag=True, help="Also list requests that were answered, and those that the agent withdrew."
)
@_json
def list_open_approvals(*, session: str | None, is_all: bool, is_json: bool) -> None:
    """List the requests for approval in SESSION [default: in all running sessions] that wait for an answer.

    SESSION is a session id from `coterie list`, or the first characters of it. The list shows session, request id,
    state, agent, and what the agent wants to do. Exits 1 if the file of a request cannot be read.
    """
    every, unreadable = _find_all(session)
    found = [each for each in every if is_all or each.approval.is_open]
    is_new = not every and not unreadable
    empty = "no agent has requested an approval" if is_new else "no approval is open; --all also lists decided ones"
    facts = {"approvals": [each.row() for each in found]}
    print_result(facts, map(_line, found), is_json=is_json, empty=empty)
    for reason in unreadable:
        click.echo(sanitize(reason), err=True)
    sys.exit(ExitCode.FAILED if unreadable else ExitCode.DONE)


@approvals.command(short_help="Show a request in full.")
@_id
@_session
@_json
def show(*, id_: str, session: str | None, is_json: bool) -> None:
    """Show the request ID in full: the agent, the whole plan or tool call, and the answer if there is one.

    `coterie approvals list` shows the ids of requests, such as plan-1. Give --session if the session has ended.
    """
    found = _find(id_, session)
    print_result(found.row(), [_details(found)], is_json=is_json)


@approvals.command(short_help="Approve a plan or a tool call.")
@_id
@click.option("--feedback", "-f", default="", metavar="TEXT", help="Text for the agent, sent with the approval.")
@_session
@_json
def approve(*, id_: str, feedback: str, session: str | None, is_json: bool) -> None:
    """Approve the request ID of an agent: the agent then carries out its plan, or this one tool call.

    `coterie approvals list` shows ids such as plan-1. Exits 2 if the session is not running or the request is answered.
    """
    _decide(DecideApproval(id=id_, approve=True, feedback=_checked(feedback)), session, is_json=is_json)


@approvals.command(short_help="Reject a plan or a tool call.")
@_id
@click.option(
    "--feedback",
    "-f",
    default="",
    metavar="TEXT",
    help="Text for the agent: the problem, and a better way. Required.",
)
@_session
@_json
def reject(*, id_: str, feedback: str, session: str | None, is_json: bool) -> None:
    """Reject the request ID of an agent: the agent makes another plan, or continues without the tool call.

    `coterie approvals list` shows ids such as plan-1. Exits 2 if the session is not running or the request is answered.
    """
    if not feedback.strip():
        raise UsageRefused("--feedback is missing; name the mistake and the remedy for the agent")
    _decide(DecideApproval(id=id_, approve=False, feedback=_checked(feedback)), session, is_json=is_json)


def _checked(feedback: str) -> str:
    if len(feedback) > LONGEST_FEEDBACK:
        raise UsageRefused(f"the feedback has {len(feedback):,} characters; use at most {LONGEST_FEEDBACK:,}")
    return feedback


def _decide(request: DecideApproval, name: str | None, *, is_json: bool) -> None:
    session = _find(request.id, None, is_to_decide=True).session if name is None else SessionDirectory.find(name)
    if (root := find_root(session)) is None:
        raise UsageRefused(f"session {session.id} is not running; start it with `coterie resume {session.id}` first")
    try:
        trio.run(send_request, root, request)
    except ConfigInvalid as exc:
        raise UsageRefused(exc.reason) from exc
    state = "approved" if request.approve else "rejected"
    facts = {"session": session.id, "id": request.id, "state": state}
    print_result(facts, [f"{state} {request.id} of session {session.id}"], is_json=is_json)


def _find(id_: str, name: str | None, *, is_to_decide: bool = False) -> ListedApproval:
    """Find *id_* of session *name* or any running one, open if *is_to_decide*; `UsageRefused` for none or several."""
    every, _ = _find_all(name)
    found = [each for each in every if each.approval.id == id_]
    if is_to_decide and len(found) > 1:
        found = [each for each in found if each.approval.is_open] or found
    if len(found) > 1:
        sessions = ", ".join(each.session.id for each in found)
        raise UsageRefused(f"{len(found)} sessions have an approval {id_}: {sessions}; choose one with --session")
    if not found:
        where = f"session {name}" if name else "the running sessions"
        hint = did_you_mean(id_, {each.approval.id for each in every})
        raise UsageRefused(f"unknown approval {id_!r} in {where}; {hint}")
    return found[0]


def _line(found: ListedApproval) -> str:
    approval, claim = found.approval, found.approval.claim
    changed = "  (file was changed)" if found.doubt else ""
    facts = f"{found.session.id}  {approval.id:<14}  {approval.state:<9}  {one_line(claim.agent, SHOWN):<12}"
    return f"{facts}  {one_line(approval.subject, SHOWN)}{changed}"


def _details(found: ListedApproval) -> str:
    approval, claim = found.approval, found.approval.claim
    asked = claim.question
    facts = {
        "session": found.session.id,
        "agent": f"{claim.agent}, start {claim.incarnation}",
        "asked": format_time(approval.asked_at),
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
