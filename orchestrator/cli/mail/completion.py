"""What a shell offers for `coterie mail`: who is there, and which letters wait for a decision."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import click
import trio
from click.shell_completion import CompletionItem

from coterie.agents.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.left_behind import find_left_behind
from coterie.orchestrator.cli.mail.office import open_office
from coterie.orchestrator.cli.printable import one_line
from coterie.orchestrator.post_office import PostOffice

Item = TypeVar("Item")

SHOWN = 60
"""Characters of a message."""


def complete_held(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of held letters."""
    letters = _find(ctx, lambda office: trio.run(office.held.letters))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for m in letters if m.id.startswith(incomplete)]


def complete_outgoing(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of letters that wait for other sessions."""
    letters = _find(ctx, lambda office: trio.run(office.bridge.outgoing.letters))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for _, m in letters if m.id.startswith(incomplete)]


def complete_gone(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Who has left mail behind, and who has ended."""

    def find(office: PostOffice) -> list[CompletionItem]:
        ended = [member.name for member in office.roster.members().values() if member.state == "ended"]
        left = [CompletionItem(name, help="left") for name in find_left_behind(office.files)]
        return left + [CompletionItem(name, help="ended") for name in ended]

    return [item for item in _find(ctx, find) if item.value.startswith(incomplete)]


def complete_dead(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The numbers of dead letters that are messages, and were not sent again."""
    letters = _find(ctx, lambda office: office.dead.letters())
    found = [(str(number), letter.envelope) for number, letter in letters if letter.envelope is not None]
    return [CompletionItem(n, help=one_line(m.body, SHOWN)) for n, m in found if n.startswith(incomplete)]


def _find(ctx: click.Context, find: Callable[[PostOffice], Iterable[Item]]) -> list[Item]:
    """What there is to offer: nothing where there is no such session, or its mail cannot be read."""
    try:
        with open_office(ctx.params.get("session")) as office:
            return list(find(office))
    except (ConfigInvalid, MailboxError, OSError):
        return []
