"""`coterie mail held`, `outgoing`, `dead` and `sweep`: list undelivered mail, and deliver, drop or clear it."""

import click
import msgspec

from coterie.mailbox.envelope import MessageId
from coterie.mailbox.transports.abandoned_mail import dead_letter_abandoned, find_abandoned
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.mail_options import (
    complete_dead,
    complete_ended_agent,
    complete_held,
    complete_outgoing,
    json_option,
    run_with_mail,
)
from coterie.orchestrator.cli.mail.message_text import dead_letter_text, message_text
from coterie.orchestrator.cli.mail.send import print_receipt, store_mail
from coterie.orchestrator.cli.output import UsageRefused, count_text, print_result, sanitize
from coterie.orchestrator.cli.shared_options import session_option
from coterie.orchestrator.control.requests import ReleaseHeldMessage, ResendDeadLetter


@click.command(short_help="List, deliver or drop held messages.")
@click.option("--release", metavar="ID", shell_complete=complete_held, help="Deliver the held message with this id.")
@click.option(
    "--drop", metavar="ID", shell_complete=complete_held, help="Make the held message with this id a dead letter."
)
@session_option
@json_option
def held(*, release: str | None, drop: str | None, session: str | None, is_json: bool) -> None:
    """List messages from other sessions that wait for your decision, and deliver or drop one of them.

    Such a held message is not delivered until you release it. A dropped message becomes a dead letter, which `coterie
    mail dead` lists. Without --release or --drop (never both), all are listed. Exits 1 after a file error, 2 if no held
    message has the ID or, with --release, if its recipient has ended or has a full mailbox; it then stays held.
    """
    if release is not None and drop is not None:
        raise click.UsageError("--release and --drop cannot be used together; give one of them")

    async def act(mail: SessionMail) -> None:
        if release is not None:
            print_receipt(await store_mail(mail, ReleaseHeldMessage(id=MessageId(release))), is_json=is_json)
        elif drop is not None:
            await mail.held.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            messages, own = await mail.held.messages(), mail.session.id
            texts = (message_text(message, session=own, now=mail.clock.now()) for message in messages)
            print_result(messages, texts, is_json=is_json, empty=f"session {own} holds no messages")

    run_with_mail(session, act)


@click.command(short_help="List or drop unsent messages to other sessions.")
@click.option(
    "--drop", metavar="ID", shell_complete=complete_outgoing, help="Make the queued message with this id a dead letter."
)
@session_option
@json_option
def outgoing(*, drop: str | None, session: str | None, is_json: bool) -> None:
    """List messages to other sessions that were not sent yet, because the other session is not running.

    While this session runs, they are sent as soon as the other session runs, too. A dropped message becomes a dead
    letter, which `coterie mail dead` lists. Without --drop, all are listed. Exits 1 after a file error.
    """

    async def act(mail: SessionMail) -> None:
        if drop is not None:
            await mail.bridge.outgoing.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
            return
        messages, own = await mail.bridge.outgoing.messages(), mail.session.id
        facts = [{"address": address, "envelope": message} for address, message in messages]
        texts = (message_text(message, session=own, now=mail.clock.now(), address=to) for to, message in messages)
        empty = f"session {own} has no queued messages for other sessions"
        print_result(facts, texts, is_json=is_json, empty=empty)

    run_with_mail(session, act)


def _report_drop(id_: str, *, is_json: bool) -> None:
    print_result({"dropped": id_}, [sanitize(f"dropped {id_}; `coterie mail dead` lists it")], is_json=is_json)


@click.command(short_help="List dead letters, or send one again.")
@click.option(
    "--resend",
    type=int,
    metavar="NUMBER",
    shell_complete=complete_dead,
    help="Send the dead letter with this number (first column) to its recipient again.",
)
@click.option("--all", "is_whole", is_flag=True, help="Also list dead letters that were sent again; not with --resend.")
@session_option
@json_option
def dead(*, resend: int | None, is_whole: bool, session: str | None, is_json: bool) -> None:
    """List dead letters with their number and reason, or send one again.

    A dead letter is a message that could not be delivered. --resend sends its text as a new message of the same sender;
    after that the dead letter is listed only with --all. Exits 1 after a file error, 2 if it cannot be delivered again.
    """
    if resend is not None and is_whole:
        raise click.UsageError("--resend and --all cannot be used together; give one of them")

    async def act(mail: SessionMail) -> None:
        if resend is not None:
            print_receipt(await store_mail(mail, ResendDeadLetter(number=resend)), is_json=is_json)
            return
        found, session = mail.dead_letters.history(), mail.session.id
        shown = [record for record in found if is_whole or record.resent is None]
        facts = [
            {"number": record.number, **msgspec.to_builtins(record.letter), "resent": record.resent} for record in shown
        ]
        resent = f"; --all lists the {len(found):,} that were sent again" if found else ""
        texts = (dead_letter_text(record, session=session) for record in shown)
        print_result(facts, texts, is_json=is_json, empty=f"session {session} has no dead letters{resent}")

    run_with_mail(session, act)


@click.command(short_help="Clear mailboxes that no agent reads any more.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_ended_agent)
@session_option
@json_option
def sweep(*, names: tuple[str, ...], session: str | None, is_json: bool) -> None:
    """Clear mailboxes that no agent reads any more: make their unread messages dead letters.

    Clears the mailboxes of the agents NAME [default: of all that have left the session, with the state left in `coterie
    mail list`]. An agent with the state ended may be resumed and would then read its messages, so give its NAME only if
    it will not be. `coterie mail dead` lists the dead letters. Exits 1 after a file error, 2 at the first NAME that is
    neither ended nor left; those before it are cleared.
    """

    async def act(mail: SessionMail) -> None:
        own = mail.session.id
        if not names and not mail.roster.path.exists():
            raise UsageRefused(f"session {own} has no roster (list of agents); give the names of mailboxes to sweep")
        rows = [
            (name, await dead_letter_abandoned(mail.files, mail.dead_letters, name))
            for name in names or find_abandoned(mail.files)
        ]
        facts = [{"name": name, "buried": count} for name, count in rows]
        lines = (f"{name}: {count_text(count, 'dead letter')}; `coterie mail dead` lists them" for name, count in rows)
        print_result(facts, map(sanitize, lines), is_json=is_json, empty=f"session {own} has no abandoned mail")

    run_with_mail(session, act)
