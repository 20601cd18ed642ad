"""`coterie mail send`: sends mail of the user through the session's supervisor process, or stores it if none runs."""

import sys
from typing import get_args

import click
import msgspec

from coterie.framing import FRAME_LIMIT
from coterie.mailbox.contract import BridgeReceipt, Receipt
from coterie.mailbox.envelope import MessageKind
from coterie.mailbox.errors import MessageTooLarge
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.completion_candidates import complete_recipient
from coterie.orchestrator.cli.mail.mail_options import json_option, run_with_mail
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, print_json, print_result, sanitize
from coterie.orchestrator.cli.shared_options import session_option
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import DeliveryStatus, DeliveryStatuses, MailRequest, NotStored, SendMail
from coterie.orchestrator.control.user_mail import is_other_session, store_user_mail
from coterie.orchestrator.session.root_lock import RootIdentity, find_root, hold_root_lock


async def store_mail(mail: SessionMail, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    """Let the root (supervisor) carry out *request*, or do it here if none runs; return a status for each recipient.

    Raises `MailboxError`, `OSError`, `ClickException` if the root refuses, and `ConfigInvalid` if it does not answer.
    """
    if isinstance(request, SendMail) and is_other_session(request.to) and find_root(mail.session) is None:
        # No mailbox of this session is written, and storing may take long, so a root may start during it.
        return await store_user_mail(mail, request)
    # Under the root lock: a root that started in between would reject this unsigned mail as forged.
    with hold_root_lock(mail.session) as root:
        if root is None:
            return await store_user_mail(mail, request)
    return await _ask_root(root, request)


async def _ask_root(root: RootIdentity, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    if (size := len(msgspec.json.encode(request))) > FRAME_LIMIT:
        raise MessageTooLarge(size, FRAME_LIMIT)
    match await send_request(root, request):
        case DeliveryStatuses(fates=statuses):
            return statuses
        case NotStored(reason=reason, is_for_user=True):
            raise UsageRefused(sanitize(reason))
        case NotStored(reason=reason):
            raise click.ClickException(sanitize(reason))
        case answer:
            raise AssertionError(f"the root (supervisor process) gave an unexpected answer to a mail request: {answer}")


_WHERE = {
    "accepted": "stored in the recipient's mailbox",
    "held": "held there until its user releases it",
    "waiting": "queued here until that session runs",
}


@click.command(short_help="Send a message to one or all agents.")
@click.argument("text")
@click.option(
    "--to",
    required=True,
    metavar="ADDRESS",
    shell_complete=complete_recipient,
    help="Recipient: the name of an agent, main for the first agent, * for all agents, or the first agent of another "
    "session as bridge:SESSION-ID or as uds:PATH of its socket.",
)
@click.option(
    "--kind",
    type=click.Choice(get_args(MessageKind)),
    default="message",
    metavar="KIND",
    help='message, or task_assignment: TEXT is then a JSON object such as {"task_id": 3} and asks the agent to do that '
    "task.  [default: message]",
)
@click.option("--summary", metavar="TEXT", help="Summary of TEXT in 5 to 10 words, shown in lists.")
@session_option
@json_option
def send(*, text: str, to: str, kind: MessageKind, summary: str | None, session: str | None, is_json: bool) -> None:
    """Send the message TEXT from you to one or all agents of a session. If TEXT is `-`, it is read from standard input.

    An agent takes messages unless its state in `coterie mail list` is ended; if the session crashed, it reads them
    after `coterie resume`. If --to names another session, --session is the session that sends; if the other one is not
    running, the message waits in the sending session until both run. Agents cannot send mail back to you: read their
    answer with `coterie attach` or `coterie logs`. Exits 1 if the mail cannot be written, 2 if a recipient refused the
    message, because it has ended or its mailbox is full; the others still get it.
    """
    if kind in AUTHORITY:
        instead = "`coterie stop`" if kind == "shutdown_request" else "`coterie approvals`"
        reason = "mail travels through files, and a file proves no authority"
        raise UsageRefused(f"{kind} cannot be sent as mail, because {reason}; use {instead}")
    _check_encoding(summary or "")

    async def post(mail: SessionMail) -> tuple[DeliveryStatus, ...]:
        body = _read_body(mail.files.limits.message_bytes) if text == "-" else text
        _check_body(body, kind)
        return await store_mail(mail, SendMail(to=to, body=body, kind=kind, summary=summary))

    statuses = run_with_mail(session, post)
    if not statuses:
        raise UsageRefused("no agent of this session accepts mail; `coterie mail list` lists its agents")
    if is_json:
        facts = ("recipient", "receipt", "refusal")
        print_json([{name: getattr(status, name) for name in facts} for status in statuses])
    for status in () if is_json else statuses:
        if status.receipt is not None:
            click.echo(sanitize(receipt_text(status.recipient, status.receipt)))
        else:
            click.echo(sanitize(f"Error: {status.refusal}"), err=True)
    sys.exit(ExitCode.USAGE if any(status.refusal for status in statuses) else ExitCode.DONE)


def _read_body(limit: int) -> str:
    # Bounded, because standard input may be endless.
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise MessageTooLarge(len(content), limit)
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise UsageRefused(f"standard input is not UTF-8: byte {exc.start + 1} is invalid; convert it first") from exc


def _check_body(body: str, kind: MessageKind) -> None:
    if not body.strip():
        raise UsageRefused("the text of the message is empty; give a text to send")
    _check_encoding(body)
    if kind == "task_assignment":
        try:
            msgspec.json.decode(body, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise UsageRefused(f'the text of a {kind} must be a JSON object such as {{"task_id": 3}}: {exc}') from exc


def _check_encoding(text: str) -> None:
    """Raise `UsageRefused` if *text*, a command-line argument, contained bytes that are not UTF-8 (now surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise UsageRefused("the text of the message is not UTF-8; convert it first") from exc


def print_receipt(statuses: tuple[DeliveryStatus, ...], *, is_json: bool) -> None:
    """Print the receipt of the one stored message in *statuses*, which has exactly one item, as text or JSON."""
    [receipt] = [status.receipt for status in statuses]
    assert receipt is not None
    print_result(receipt, [sanitize(receipt_text(receipt.recipient, receipt))], is_json=is_json)


def receipt_text(recipient: str, receipt: Receipt) -> str:
    """Return one line for the user: the recipient, the id of the stored message, and its state in another session."""
    where = f"; {_WHERE[receipt.state]}" if isinstance(receipt, BridgeReceipt) else ""
    return f"stored for {recipient} as {receipt.id}{where}"
