"""Messages of the control socket, and between a root (supervisor process) and the client that launched it."""

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
"""Binary format in which the kernel returns process, user and group id of the peer of a socket."""


class StopAgent(WireMessage, tag="stop_agent", frozen=True):
    """Request: stop the agent *name* and its descendants. No later message starts them again."""

    name: str


class MoveToBackground(WireMessage, tag="move_to_background", frozen=True):
    """Request: make the parent of agent *name* stop waiting for it. The report of the agent then comes as mail."""

    name: str


class CompactAgent(WireMessage, tag="compact_agent", frozen=True):
    """Request: compact the conversation of agent *name*. Answered by `CompactionDone` or `NotCompacted`."""

    name: str
    side: Side | None = None
    """Part to summarize: from message `message` on ("from") or before it ("up_to"); None for the older messages."""
    message: int = 1

    def pivot(self) -> Pivot | None:
        """Return the part of the conversation to summarize, as side and message number; None for the older messages."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class DecideApproval(WireMessage, tag="decide_approval", frozen=True):
    """Request: approve or reject the open approval request *id* as the user."""

    id: str
    approve: bool
    feedback: str = ""


class SpawnAgent(WireMessage, tag="spawn_agent", frozen=True):
    """Request: start an agent as a child of the lead, as if the lead had requested it. Answered by `AgentStarted`."""

    wanted: SpawnRequest


class GetStopTime(WireMessage, tag="get_stop_time", frozen=True):
    """Request: ask a root (supervisor) that is ending how many seconds it may still take. Answered by `StopTime`."""


class SendMail(WireMessage, tag="post_mail", frozen=True):
    """Request: send a message of the user to an agent, all, or a session. Answer: `DeliveryStatuses` or `NotStored`."""

    to: str
    """Recipient: name of an agent, `*` for all agents, or another session as `bridge:ID` or `uds:SOCKET`."""
    body: str
    kind: MessageKind = "message"
    summary: str | None = None


class ResendDeadLetter(WireMessage, tag="resend_letter", frozen=True):
    """Request: send the dead letter *number* (a message that could not be delivered) again. Answered as `SendMail`."""

    number: int


class ReleaseHeldMessage(WireMessage, tag="release_letter", frozen=True):
    """Request: deliver a message of another session that waits for the user's consent. Answered as `SendMail`."""

    id: MessageId


class AgentStarted(WireMessage, tag="agent_begun", frozen=True):
    """Answer to `SpawnAgent`: the requested agent is running."""

    spawned: Spawned


class StopTime(WireMessage, tag="stop_time", frozen=True):
    """Answer to `GetStopTime`: the time that the root (supervisor process) still needs to stop its agents."""

    seconds: float
    """Seconds that stopping the agents may still take; 0 if none is being stopped, or the limit is exceeded."""


class RequestDone(WireMessage, tag="granted", frozen=True):
    """Answer to a request that succeeded and has no result."""


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery of a message to one recipient. Either `stored`, `abroad` (another session) or `refusal` is set."""

    recipient: str
    """Recipient: the address in the request, or the name of one agent if the message went to all agents."""
    stored: Receipt | None = None
    abroad: BridgeReceipt | None = None
    refusal: str | None = None

    @property
    def receipt(self) -> Receipt | None:
        """Receipt of the stored message, in this session or another one; None if the message was refused."""
        return self.stored or self.abroad


class DeliveryStatuses(WireMessage, tag="fates", frozen=True):
    """Answer to a mail request: the delivery status for each recipient of the message."""

    fates: tuple[DeliveryStatus, ...]


class NotStored(WireMessage, tag="not_stored", frozen=True):
    """Answer to a mail request that failed with an error. Some recipients may have the message nevertheless."""

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
    """Return the control socket's address of supervisor *root*: a unique abstract name, so no file is left behind."""
    return f"\0coterie-{read_boot_id()}-{root.pid}-{root.began}"


def peer_pid(stream: trio.SocketStream) -> int | None:
    """Return the process id at the other end of *stream*; None if it belongs to another user. Raises `OSError`."""
    pid, uid, _ = CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid if uid == os.getuid() else None


class SessionOpened(WireMessage, tag="opened", frozen=True):
    """Message of the root (supervisor) to the client that launched it: the session is open, the lead starts next."""

    session: str


class SessionEnded(WireMessage, tag="over", frozen=True):
    """Last message of the root (supervisor) to the client that launched it: the lead and all other processes ended."""

    is_done: bool
    """True if the lead's process ended with status 0; the task's result is in the lead's `Finished` event instead."""
    reason: str = ""
    """Reason why the lead's process did not end with status 0; not used if `is_done` is true."""


class InterruptTurn(WireMessage, tag="interrupt", frozen=True):
    """Message of the client that launched the root (supervisor): cancel the lead's current turn."""


class EndSession(WireMessage, tag="end", frozen=True):
    """Message of the client that launched the root (supervisor): kill all agents and end the session immediately."""


class Detach(WireMessage, tag="leave", frozen=True):
    """Message of the client that launched the root (supervisor): it disconnects, prompts end; the session continues."""


RootMessage = SessionOpened | SessionEnded | PromptUser | RunFailed
ClientMessage = InterruptTurn | EndSession | Detach

root_message_decoder: msgspec.json.Decoder[Frame[RootMessage]] = msgspec.json.Decoder(Frame[RootMessage])
client_message_decoder: msgspec.json.Decoder[Frame[ClientMessage]] = msgspec.json.Decoder(Frame[ClientMessage])
