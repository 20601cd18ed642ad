"""`coterie mail`: sends mail and shows the mailboxes of a session, whether it is running or not."""

import click

from coterie.orchestrator.cli.mail.inspect import list_mailboxes, read, watch
from coterie.orchestrator.cli.mail.send import send
from coterie.orchestrator.cli.mail.undelivered import dead, held, outgoing, sweep


@click.group()
def mail() -> None:
    """Send messages to the agents of a session, and show the messages that agents send each other."""


for _command in (send, list_mailboxes, read, watch, dead, sweep, held, outgoing):
    mail.add_command(_command)
