"""What a shell of the user may ask a root for, on the root's control socket."""

import os
import socket
import struct

import msgspec
import trio

from coterie.agents.compaction.plan import Pivot, Side
from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.agents.control.word import Word
from coterie.agents.control.words import Unable
from coterie.agents.spawning import Spawned, SpawnRequest
from coterie.mailbox.bridge import BridgeReceipt
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Kind
from coterie.mailbox.ids import MessageId
from coterie.orchestrator.root_record import RootProcess

CREDENTIALS = struct.Struct("iII")
"""Process, user and group, as the kernel tells them of the other end of a socket."""


class StopAgent(Word, tag="stop_agent", frozen=True):
    """End an agent and its subagents, and do not take it up again."""

    name: str


class MoveToBackground(Word, tag="move_to_background", frozen=True):
    """Let whoever waits for this agent go on."""

    name: str


class CompactAgent(Word, tag="compact_agent", frozen=True):
    """Compact an agent's conversation. Answered by `Compaction` or `NotCompacted`."""

    name: str
    side: Side | None = None
    """None for the older part of it."""
    message: int = 1

    def pivot(self) -> Pivot | None:
        """Which part is meant."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class DecideApproval(Word, tag="decide_approval", frozen=True):
    """The user's answer to an approval that is open."""

    id: str
    approve: bool
    feedback: str = ""


class SpawnAgent(Word, tag="spawn_agent", frozen=True):
    """Start another agent for the lead, as if that had asked for it. Answered by `AgentBegun`."""

    wanted: SpawnRequest


class PostMail(Word, tag="post_mail", frozen=True):
    """Send a message of the user. It, and the other requests for mail, are answered by `Fates` or `NotStored`."""

    to: str
    """An address, as `parse_address` reads it."""
    body: str
    kind: Kind = "message"
    summary: str | None = None


class ResendLetter(Word, tag="resend_letter", frozen=True):
    """Send a dead letter again."""

    number: int


class ReleaseLetter(Word, tag="release_letter", frozen=True):
    """Let a held letter be delivered."""

    id: MessageId


class AgentBegun(Word, tag="agent_begun", frozen=True):
    """The agent that was wanted is at work."""

    spawned: Spawned


class Granted(Word, tag="granted", frozen=True):
    """It was done."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
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


class Fates(Word, tag="fates", frozen=True):
    """A message was stored for those who can get it."""

    fates: tuple[Fate, ...]


class NotStored(Word, tag="not_stored", frozen=True):
    """A message was stored for nobody."""

    reason: str
    is_for_user: bool
    """Whether the user must mend what was asked for, and not the machine."""


MailRequest = PostMail | ResendLetter | ReleaseLetter
Request = StopAgent | MoveToBackground | CompactAgent | DecideApproval | SpawnAgent | MailRequest
MailAnswer = Fates | NotStored
Answer = Granted | Compaction | NotCompacted | AgentBegun | MailAnswer
Response = Answer | Unable

requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
responses: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)


def control_address(root: RootProcess) -> str:
    """Where *root* listens: a name that is nobody else's, and in no directory, so that none is left of a killed one."""
    return f"\0coterie-{root.boot}-{root.pid}-{root.began}"


def peer_of(stream: trio.SocketStream) -> int | None:
    """The process on the other end; None if it is another user's. Raises `OSError`."""
    pid, uid, _ = CREDENTIALS.unpack(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid if uid == os.getuid() else None
