"""`coterie mail`: the mailboxes of a session, from a shell. It works while the session runs, and afterwards."""

import click

from coterie.orchestrator.cli.mail.dead import dead, sweep
from coterie.orchestrator.cli.mail.deciding import held, outgoing
from coterie.orchestrator.cli.mail.looking import list_mailboxes, read, watch
from coterie.orchestrator.cli.mail.sending import send


@click.group()
def mail() -> None:
    """Send mail to the agents of a session, and look at theirs."""


for _command in (send, list_mailboxes, read, watch, dead, sweep, held, outgoing):
    mail.add_command(_command)
