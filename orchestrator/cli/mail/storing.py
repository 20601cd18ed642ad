"""Storing mail from a shell: the root of the session does it, who can sign; only if there is none, the shell itself."""

import click
import msgspec

from coterie.mailbox.bridge.frames import FRAME_LIMIT
from coterie.mailbox.errors import MessageTooLarge
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.requests import Fate, Fates, MailRequest, NotStored, PostMail
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.root_record import RootProcess, find_root, keep_root_out
from coterie.orchestrator.user_mail import is_for_others, store_mail


async def store(office: PostOffice, request: MailRequest) -> tuple[Fate, ...]:
    """What became of it, for each recipient.

    Raises what `use_office` understands, and `ConfigInvalid` if the root cannot be asked.
    """
    if isinstance(request, PostMail) and is_for_others(request.to) and find_root(office.session) is None:
        # In no mailbox of this session, and it may take long: a root may well begin meanwhile.
        return await store_mail(office, request)
    # A root that began in between would not know what to believe, and take this for forged.
    with keep_root_out(office.session) as root:
        if root is None:
            return await store_mail(office, request)
    return await _ask(root, request)


async def _ask(root: RootProcess, request: MailRequest) -> tuple[Fate, ...]:
    if (size := len(msgspec.json.encode(request))) > FRAME_LIMIT:
        raise MessageTooLarge(size, FRAME_LIMIT)
    match await ask_root(root, request):
        case Fates(fates=fates):
            return fates
        case NotStored(reason=reason, is_for_user=True):
            raise Refused(printable(reason))
        case NotStored(reason=reason):
            raise click.ClickException(printable(reason))
        case answer:
            raise AssertionError(f"{answer} answers nothing that was asked")
