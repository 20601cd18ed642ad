"""Requests and replies of the control socket."""

import os
import socket
import struct

import msgspec
import trio

from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted, Pivot, Side
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.spawn_request import Spawned, SpawnRequest
from coterie.agents.root_link.wire_format import WireMessage
from coterie.mailbox.contract import BridgeReceipt, Receipt
from coterie.mailbox.envelope import MessageId, MessageKind
from coterie.process_identity import ProcessIdentity, read_boot_id

CREDENTIALS = struct.Struct("iII")
"""Process, user and group, as the kernel tells them of the other end of a socket."""


class StopAgent(WireMessage, tag="stop_agent", frozen=True):
    """End an agent and its subagents, and do not take it up again."""

    name: str


class MoveToBackground(WireMessage, tag="move_to_background", frozen=True):
    """Let whoever waits for this agent go on."""

    name: str


class CompactAgent(WireMessage, tag="compact_agent", frozen=True):
    """Compact an agent's conversation. Answered by `CompactionDone` or `NotCompacted`."""

    name: str
    side: Side | None = None
    """None for the older part of it."""
    message: int = 1

    def pivot(self) -> Pivot | None:
        """Which part is meant."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class DecideApproval(WireMessage, tag="decide_approval", frozen=True):
    """The user's answer to an approval that is open."""

    id: str
    approve: bool
    feedback: str = ""


class SpawnAgent(WireMessage, tag="spawn_agent", frozen=True):
    """Start another agent for the lead, as if that had asked for it. Answered by `AgentStarted`."""

    wanted: SpawnRequest


class GetStopTime(WireMessage, tag="get_stop_time", frozen=True):
    """Ask a root that was told to end how long it may still take. Answered by `StopTime`."""


class SendMail(WireMessage, tag="post_mail", frozen=True):
    """Send a message of the user; this and the other mail requests return `DeliveryStatuses` or `NotStored`."""

    to: str
    """An address, as `parse_address` reads it."""
    body: str
    kind: MessageKind = "message"
    summary: str | None = None


class ResendDeadLetter(WireMessage, tag="resend_letter", frozen=True):
    """Send a dead letter again."""

    number: int


class ReleaseHeldMessage(WireMessage, tag="release_letter", frozen=True):
    """Let a held letter be delivered."""

    id: MessageId


class AgentStarted(WireMessage, tag="agent_begun", frozen=True):
    """The agent that was wanted is at work."""

    spawned: Spawned


class StopTime(WireMessage, tag="stop_time", frozen=True):
    """Time in which the root has stopped its agents."""

    seconds: float
    """0 if no agent is being stopped, or if a stop takes longer than it may."""


class RequestDone(WireMessage, tag="granted", frozen=True):
    """It was done."""


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message for one recipient: one of the three."""

    recipient: str
    """As it was asked for."""
    stored: Receipt | None = None
    abroad: BridgeReceipt | None = None
    refusal: str | None = None

    @property
    def receipt(self) -> Receipt | None:
        """Where it is stored, here or in another session."""
        return self.stored or self.abroad


class DeliveryStatuses(WireMessage, tag="fates", frozen=True):
    """A message was stored for those who can get it."""

    fates: tuple[DeliveryStatus, ...]


class NotStored(WireMessage, tag="not_stored", frozen=True):
    """A message was stored for nobody."""

    reason: str
    is_for_user: bool
    """Whether the user must mend what was asked for, and not the machine."""


MailRequest = SendMail | ResendDeadLetter | ReleaseHeldMessage
ControlRequest = StopAgent | MoveToBackground | CompactAgent | DecideApproval | SpawnAgent | GetStopTime | MailRequest
MailAnswer = DeliveryStatuses | NotStored
ControlAnswer = RequestDone | CompactionDone | NotCompacted | AgentStarted | StopTime | MailAnswer
ControlResponse = ControlAnswer | RunFailed

request_decoder: msgspec.json.Decoder[ControlRequest] = msgspec.json.Decoder(ControlRequest)
response_decoder: msgspec.json.Decoder[ControlResponse] = msgspec.json.Decoder(ControlResponse)


def control_address(root: ProcessIdentity) -> str:
    """Socket address of *root*: unique, and an abstract name, so that a killed root leaves no file."""
    return f"\0coterie-{read_boot_id()}-{root.pid}-{root.began}"


def peer_pid(stream: trio.SocketStream) -> int | None:
    """The process on the other end; None if it is another user's. Raises `OSError`."""
    pid, uid, _ = CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid if uid == os.getuid() else None
