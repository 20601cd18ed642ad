"""`coterie mail send`: sends mail of the user through the root, or stores it if none runs."""

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
from coterie.orchestrator.cli.mail.mail_options import json_option, print_json, run_with_mail, session_option
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, open_output, sanitize
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import DeliveryStatus, DeliveryStatuses, MailRequest, NotStored, SendMail
from coterie.orchestrator.control.user_mail import is_other_session, store_user_mail
from coterie.orchestrator.session.root_lock import RootIdentity, find_root, hold_root_lock


async def store_mail(office: SessionMail, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    """What became of it, for each recipient.

    Raises what `run_with_mail` understands, and `ConfigInvalid` if the root cannot be asked.
    """
    if isinstance(request, SendMail) and is_other_session(request.to) and find_root(office.session) is None:
        # In no mailbox of this session, and it may take long: a root may well begin meanwhile.
        return await store_user_mail(office, request)
    # A root that began in between would not know what to believe, and take this for forged.
    with hold_root_lock(office.session) as root:
        if root is None:
            return await store_user_mail(office, request)
    return await _ask_root(root, request)


async def _ask_root(root: RootIdentity, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    if (size := len(msgspec.json.encode(request))) > FRAME_LIMIT:
        raise MessageTooLarge(size, FRAME_LIMIT)
    match await send_request(root, request):
        case DeliveryStatuses(fates=fates):
            return fates
        case NotStored(reason=reason, is_for_user=True):
            raise UsageRefused(sanitize(reason))
        case NotStored(reason=reason):
            raise click.ClickException(sanitize(reason))
        case answer:
            raise AssertionError(f"{answer} answers nothing that was asked")


STDIN = "-"

_WHERE = {
    "accepted": "is in its mailbox",
    "held": "waits there until its user releases it",
    "waiting": "waits here until that session listens",
}


@click.command()
@click.argument("text")
@click.option(
    "--to",
    required=True,
    metavar="ADDRESS",
    shell_complete=complete_recipient,
    help="A name, main, * for everyone, uds:PATH or bridge:SESSION.",
)
@click.option(
    "--kind",
    type=click.Choice(get_args(MessageKind)),
    default="message",
    metavar="KIND",
    help="message or task_assignment.",
)
@click.option("--summary", metavar="TEXT", help="What it is about, in 5 to 10 words.")
@session_option
@json_option
def send(*, text: str, to: str, kind: MessageKind, summary: str | None, session: str | None, is_json: bool) -> None:
    """Send TEXT to agents; - reads it from standard input.

    You are the human `user`, who has no mailbox: what an agent has to say to you, it says in its session. Ends with 0
    once the message is stored for all, and with 2 if somebody cannot get it.
    """
    _check_kind(kind)
    _check_encoding(summary or "")

    async def post(office: SessionMail) -> tuple[DeliveryStatus, ...]:
        body = _read_body(office.files.limits.message_bytes) if text == STDIN else text
        _check_body(body, kind)
        return await store_mail(office, SendMail(to=to, body=body, kind=kind, summary=summary))

    fates = run_with_mail(session, post)
    if not fates:
        raise UsageRefused("nobody in this session takes mail; `coterie mail list` shows who is there")
    with open_output():
        _report(fates, is_json=is_json)
    sys.exit(ExitCode.USAGE if any(fate.refusal for fate in fates) else ExitCode.DONE)


def _check_kind(kind: MessageKind) -> None:
    if kind in AUTHORITY:
        instead = "`coterie stop`" if kind == "shutdown_request" else "`coterie approvals`"
        reason = "mail travels through files, and a file proves no authority"
        raise UsageRefused(f"{kind} cannot be sent from a shell: {reason}; {instead} does it")


def _read_body(limit: int) -> str:
    # No more than what is surely too large: standard input may have no end.
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise MessageTooLarge(len(content), limit)
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise UsageRefused(f"standard input is not text in UTF-8: byte {exc.start + 1} is wrong") from exc


def _check_body(body: str, kind: MessageKind) -> None:
    if not body.strip():
        raise UsageRefused("there is nothing to send: the text is empty")
    _check_encoding(body)
    if kind == "task_assignment":
        try:
            msgspec.json.decode(body, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise UsageRefused(f'the text of {kind} is a JSON object, as {{"task_id": 3}}: {exc}') from exc


def _check_encoding(text: str) -> None:
    """Refuse what a shell gave in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise UsageRefused("the text is not in UTF-8") from exc


def _report(fates: tuple[DeliveryStatus, ...], *, is_json: bool) -> None:
    if is_json:
        print_json([{"recipient": fate.recipient, "receipt": fate.receipt, "refusal": fate.refusal} for fate in fates])
        return
    for fate in fates:
        if fate.receipt is not None:
            click.echo(sanitize(receipt_text(fate.recipient, fate.receipt)))
        else:
            click.echo(sanitize(f"Error: {fate.refusal}"), err=True)


def print_receipt(fates: tuple[DeliveryStatus, ...], *, is_json: bool) -> None:
    """Say what the one receipt there is says, to a person or as JSON."""
    [receipt] = [fate.receipt for fate in fates]
    assert receipt is not None
    if is_json:
        print_json(receipt)
    else:
        click.echo(sanitize(receipt_text(receipt.recipient, receipt)))


def receipt_text(recipient: str, receipt: Receipt) -> str:
    """What a receipt says, in one line."""
    where = f"; it {_WHERE[receipt.state]}" if isinstance(receipt, BridgeReceipt) else ""
    return f"stored for {recipient} as {receipt.id}{where}"
