"""A process of a scenario lets go wrong what the scenario says; any other process never comes further than here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FAULTS_VARIABLE = "COTERIE_FAULTS"
"""The file of orders for what goes wrong; only a scenario sets it."""


@contextmanager
def injected_faults(process: str) -> Iterator[None]:
    """Let writes and mail of this process, which is called *process*, go wrong as ordered until the block ends."""
    if (orders := os.environ.get(FAULTS_VARIABLE)) is None:
        yield
        return
    # Imported here: without a scenario nothing of it is even loaded.
    from coterie.files import file_faults  # noqa: PLC0415
    from coterie.mailbox.faults import mail_faults  # noqa: PLC0415
    from coterie.orchestrator.fault_orders import FileDisturbance, MailDisturbance, Orders  # noqa: PLC0415

    followed = Orders(Path(orders), process)
    with file_faults(FileDisturbance(followed)), mail_faults(MailDisturbance(followed)):
        yield
