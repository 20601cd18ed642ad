"""`coterie mail send`: a word of the human to agents, and a receipt."""

import sys
from typing import get_args

import click
import msgspec

from coterie.mailbox.bridge import BridgeReceipt
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Kind
from coterie.mailbox.errors import MessageTooLarge
from coterie.mailbox.policy import AUTHORITY
from coterie.orchestrator.cli.completion import complete_anyone
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.mail.office import json_option, print_json, session_option, use_office
from coterie.orchestrator.cli.mail.storing import store
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.control_socket.requests import Fate, PostMail
from coterie.orchestrator.post_office import PostOffice

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
    shell_complete=complete_anyone,
    help="A name, main, * for everyone, uds:PATH or bridge:SESSION.",
)
@click.option(
    "--kind", type=click.Choice(get_args(Kind)), default="message", metavar="KIND", help="message or task_assignment."
)
@click.option("--summary", metavar="TEXT", help="What it is about, in 5 to 10 words.")
@session_option
@json_option
def send(*, text: str, to: str, kind: Kind, summary: str | None, session: str | None, is_json: bool) -> None:
    """Send TEXT to agents; - reads it from standard input.

    You are the human `user`, who has no mailbox: what an agent has to say to you, it says in its session. Ends with 0
    once the message is stored for all, and with 2 if somebody cannot get it.
    """
    _check_kind(kind)
    _check_encoding(summary or "")

    async def post(office: PostOffice) -> tuple[Fate, ...]:
        body = _read_body(office.files.limits.message_bytes) if text == STDIN else text
        _check_body(body, kind)
        return await store(office, PostMail(to=to, body=body, kind=kind, summary=summary))

    fates = use_office(session, post)
    if not fates:
        raise Refused("nobody in this session takes mail; `coterie mail list` shows who is there")
    with open_output():
        _report(fates, is_json=is_json)
    sys.exit(ExitCode.USAGE if any(fate.refusal for fate in fates) else ExitCode.DONE)


def _check_kind(kind: Kind) -> None:
    if kind in AUTHORITY:
        instead = "`coterie stop`" if kind == "shutdown_request" else "`coterie approvals`"
        reason = "mail travels through files, and a file proves no authority"
        raise Refused(f"{kind} cannot be sent from a shell: {reason}; {instead} does it")


def _read_body(limit: int) -> str:
    # No more than what is surely too large: standard input may have no end.
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise MessageTooLarge(len(content), limit)
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise Refused(f"standard input is not text in UTF-8: byte {exc.start + 1} is wrong") from exc


def _check_body(body: str, kind: Kind) -> None:
    if not body.strip():
        raise Refused("there is nothing to send: the text is empty")
    _check_encoding(body)
    if kind == "task_assignment":
        try:
            msgspec.json.decode(body, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise Refused(f'the text of {kind} is a JSON object, as {{"task_id": 3}}: {exc}') from exc


def _check_encoding(text: str) -> None:
    """Refuse what a shell gave in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise Refused("the text is not in UTF-8") from exc


def _report(fates: tuple[Fate, ...], *, is_json: bool) -> None:
    if is_json:
        print_json([{"recipient": fate.recipient, "receipt": fate.receipt, "refusal": fate.refusal} for fate in fates])
        return
    for fate in fates:
        if fate.receipt is not None:
            click.echo(printable(receipt_text(fate.recipient, fate.receipt)))
        else:
            click.echo(printable(f"Error: {fate.refusal}"), err=True)


def print_receipt(fates: tuple[Fate, ...], *, is_json: bool) -> None:
    """Say what the one receipt there is says, to a person or as JSON."""
    [receipt] = [fate.receipt for fate in fates]
    assert receipt is not None
    if is_json:
        print_json(receipt)
    else:
        click.echo(printable(receipt_text(receipt.recipient, receipt)))


def receipt_text(recipient: str, receipt: Receipt) -> str:
    """What a receipt says, in one line."""
    where = f"; it {_WHERE[receipt.state]}" if isinstance(receipt, BridgeReceipt) else ""
    return f"stored for {recipient} as {receipt.id}{where}"
