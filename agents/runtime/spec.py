"""Spec of one incarnation of an agent, passed from the root to the agent process."""

from typing import Any

import attrs
import msgspec

from coterie.agents.mcp.client import McpAccess
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.job_messages import OfflineJob, parse_offline_job
from coterie.agents.root_link.spawn_request import MemoryScope, Spawned
from coterie.agents.settings import Settings, dump_settings, load_settings_dump
from coterie.agents.worktrees.worktree import Worktree, parse_worktree
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.validation import MessageDigest

AGENT_ENTRY = "coterie.agents.runtime.agent_main:main"
"""What a process is started with it for; the zygote has it, and nobody else needs to import the SDK for it."""


@attrs.frozen(kw_only=True)
class AgentSpec:
    """One start of one agent, and its task."""

    session: str
    """The session's id."""
    name: str
    incarnation: int
    parent: str | None
    """Who is told what came of it; None for the lead."""
    report: MessageId
    """The id of that message: whoever sends it, the agent or the root for a dead one, the parent gets it once."""
    task: str
    model: str
    settings: Settings
    definition: str | None = None
    """What kind of agent it is."""
    server: str | None = None
    """The URL of the embedded server, where that plays the model."""
    is_bare: bool = False
    fork: str | None = None
    """The file of the fork point it begins with."""
    stays: bool = False
    """Whether it waits for messages when the task is done."""
    directory: str | None = None
    """Where it works; None for the session's project."""
    worktree: Worktree | None = None
    """Its own, if it has one."""
    can_ask: bool = False
    """Whether somebody is there who can be asked for permissions."""
    above: tuple[Settings, ...] = ()
    """Those of its parents, the nearest first."""
    keys: str | None = attrs.field(default=None, repr=False)
    """The secret that the session's mail is signed with, as `SessionKeys.to_hex` gives it; None for no signatures."""
    believed: tuple[MessageDigest, ...] = ()
    """What waited in its mailbox when the root began, which needs no signature."""
    chore: OfflineJob | None = None
    """What it is to do instead of its task."""
    memory: MemoryScope | None = None
    """Where it keeps what it learns; None is what its definition says."""
    at_work: tuple[Spawned, ...] = ()
    """Whom it started before it crashed, and who have not reported yet."""
    has_teammate: bool = False
    """Whether it had started one before it crashed who stays, and owes no report."""
    plan: PlanPolicy | None = None
    """Who must approve its plan before it may do more than read; None lets it begin."""
    is_approved: bool = False
    """Whether that is done, as the root knows."""
    is_taken_up: bool = False
    """Whether it was begun under an earlier root: then its transcript may have the task."""

    mcp: McpAccess | None = None
    """How it reaches the MCP servers of the session; None if there are none now."""

    def to_bytes(self) -> bytes:
        """One JSON object."""
        settings = {"settings": dump_settings(self.settings), "above": [dump_settings(each) for each in self.above]}
        return msgspec.json.encode(attrs.asdict(self, recurse=False) | settings, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "AgentSpec":
        """What `to_bytes` wrote."""
        members: dict[str, Any] = msgspec.json.decode(data)
        settings = {
            "settings": load_settings_dump(members["settings"]),
            "above": tuple(map(load_settings_dump, members["above"])),
        }
        worktree = None if members["worktree"] is None else parse_worktree(members["worktree"])
        facts = {
            "worktree": worktree,
            "believed": tuple(members["believed"]),
            "chore": parse_offline_job(members["chore"]),
            "plan": msgspec.convert(members["plan"], PlanPolicy | None),
            "mcp": msgspec.convert(members["mcp"], McpAccess | None),
            "at_work": tuple(Spawned(**each) for each in members["at_work"]),
        }
        return cls(**members | settings | facts)


FORK_TYPE = "fork"
"""What the roster has for the kind of a fork."""
