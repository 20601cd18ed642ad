"""Requests and replies of the control socket, and messages between a root and the client that launched it."""

import os
import socket
import struct

import msgspec
import trio

from coterie.agents.root_link.approval_messages import PromptUser
from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted, Pivot, Side
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.spawn_request import Spawned, SpawnRequest
from coterie.agents.root_link.wire_format import Frame, WireMessage
from coterie.mailbox.contract import BridgeReceipt, Receipt
from coterie.mailbox.envelope import MessageId, MessageKind
from coterie.process_identity import ProcessIdentity, read_boot_id

CREDENTIALS = struct.Struct("iII")
"""Process, user and group id of the peer of a socket, as the kernel returns them."""


class StopAgent(WireMessage, tag="stop_agent", frozen=True):
    """Stop an agent and its subagents for good."""

    name: str


class MoveToBackground(WireMessage, tag="move_to_background", frozen=True):
    """Make the parent of this agent stop waiting for it."""

    name: str


class CompactAgent(WireMessage, tag="compact_agent", frozen=True):
    """Compact an agent's conversation. Answered by `CompactionDone` or `NotCompacted`."""

    name: str
    side: Side | None = None
    """Side of the message to summarize; None to summarize the older part of the conversation."""
    message: int = 1

    def pivot(self) -> Pivot | None:
        """Return the part to summarize; None for the older part."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class DecideApproval(WireMessage, tag="decide_approval", frozen=True):
    """Decide an open approval as the user."""

    id: str
    approve: bool
    feedback: str = ""


class SpawnAgent(WireMessage, tag="spawn_agent", frozen=True):
    """Start an agent for the lead, as if the lead had requested it. Answered by `AgentStarted`."""

    wanted: SpawnRequest


class GetStopTime(WireMessage, tag="get_stop_time", frozen=True):
    """Ask an ending root how long it may still take. Answered by `StopTime`."""


class SendMail(WireMessage, tag="post_mail", frozen=True):
    """Send a message of the user. All mail requests are answered by `DeliveryStatuses` or `NotStored`."""

    to: str
    """Recipient address, as `parse_address` accepts it."""
    body: str
    kind: MessageKind = "message"
    summary: str | None = None


class ResendDeadLetter(WireMessage, tag="resend_letter", frozen=True):
    """Send a dead letter again."""

    number: int


class ReleaseHeldMessage(WireMessage, tag="release_letter", frozen=True):
    """Deliver a held message."""

    id: MessageId


class AgentStarted(WireMessage, tag="agent_begun", frozen=True):
    """The requested agent is running."""

    spawned: Spawned


class StopTime(WireMessage, tag="stop_time", frozen=True):
    """Time that the root needs to stop its agents."""

    seconds: float
    """Seconds; 0 if no agent is being stopped, or if a stop has exceeded its limit."""


class RequestDone(WireMessage, tag="granted", frozen=True):
    """The request succeeded."""


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery of a message to one recipient: exactly one of the three fields is set."""

    recipient: str
    """Recipient as given in the request."""
    stored: Receipt | None = None
    abroad: BridgeReceipt | None = None
    refusal: str | None = None

    @property
    def receipt(self) -> Receipt | None:
        """Receipt of the stored message, in this or another session; None if it was refused."""
        return self.stored or self.abroad


class DeliveryStatuses(WireMessage, tag="fates", frozen=True):
    """Delivery status for each recipient."""

    fates: tuple[DeliveryStatus, ...]


class NotStored(WireMessage, tag="not_stored", frozen=True):
    """The message was not stored for any recipient."""

    reason: str
    is_for_user: bool
    """True if the user must change the request; False for an error of the machine."""


MailRequest = SendMail | ResendDeadLetter | ReleaseHeldMessage
ControlRequest = StopAgent | MoveToBackground | CompactAgent | DecideApproval | SpawnAgent | GetStopTime | MailRequest
MailAnswer = DeliveryStatuses | NotStored
ControlAnswer = RequestDone | CompactionDone | NotCompacted | AgentStarted | StopTime | MailAnswer
ControlResponse = ControlAnswer | RunFailed

request_decoder: msgspec.json.Decoder[ControlRequest] = msgspec.json.Decoder(ControlRequest)
response_decoder: msgspec.json.Decoder[ControlResponse] = msgspec.json.Decoder(ControlResponse)


def control_address(root: ProcessIdentity) -> str:
    """Return the socket address of *root*: a unique abstract name, so that a killed root leaves no file."""
    return f"\0coterie-{read_boot_id()}-{root.pid}-{root.began}"


def peer_pid(stream: trio.SocketStream) -> int | None:
    """Return the pid of the peer; None if it belongs to another user. Raises `OSError`."""
    pid, uid, _ = CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid if uid == os.getuid() else None


class SessionOpened(WireMessage, tag="opened", frozen=True):
    """The session is open, and its lead is about to be started."""

    session: str


class SessionEnded(WireMessage, tag="over", frozen=True):
    """The lead and all other processes of the session have ended."""

    is_done: bool
    """True if the lead's process ended with status 0; the result of the task is an event."""
    reason: str = ""
    """Reason if `is_done` is false."""


class InterruptTurn(WireMessage, tag="interrupt", frozen=True):
    """Cancel the lead's current turn."""


class EndSession(WireMessage, tag="end", frozen=True):
    """Kill all agents and end the session immediately."""


class Detach(WireMessage, tag="leave", frozen=True):
    """The client detaches; the session continues without prompts."""


RootMessage = SessionOpened | SessionEnded | PromptUser | RunFailed
ClientMessage = InterruptTurn | EndSession | Detach

root_message_decoder: msgspec.json.Decoder[Frame[RootMessage]] = msgspec.json.Decoder(Frame[RootMessage])
client_message_decoder: msgspec.json.Decoder[Frame[ClientMessage]] = msgspec.json.Decoder(Frame[ClientMessage])
