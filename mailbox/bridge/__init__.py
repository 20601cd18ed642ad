"""The bridge: how a session takes mail from other sessions of the same user, and how it sends to them.

A session listens on a Unix socket (`open_bridge`); another one writes to it (`BridgeTransport`), and keeps what it
wrote while nobody listens (`OutgoingMail`), to hand it over later (`open_forwarding`). What came in is handed to the
session's own transport, held until the user decides (`HeldMail`), or refused, as the session's `Terms` say.
"""

from coterie.mailbox.bridge.forwarding import open_forwarding
from coterie.mailbox.bridge.held import HeldMail, NotHeld
from coterie.mailbox.bridge.inbound import Deliver
from coterie.mailbox.bridge.listener import open_bridge
from coterie.mailbox.bridge.outgoing import NotWaiting, OutgoingMail, Queue
from coterie.mailbox.bridge.place import BridgeUnusable, socket_path
from coterie.mailbox.bridge.terms import Policy, Terms
from coterie.mailbox.bridge.transport import BridgeReceipt, BridgeTransport

__all__ = [
    "BridgeReceipt",
    "BridgeTransport",
    "BridgeUnusable",
    "Deliver",
    "HeldMail",
    "NotHeld",
    "NotWaiting",
    "OutgoingMail",
    "Policy",
    "Queue",
    "Terms",
    "open_bridge",
    "open_forwarding",
    "socket_path",
]
