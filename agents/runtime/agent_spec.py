"""Spec of an agent: built by the supervisor, completed for each start, and passed to the agent process."""

from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.mcp.client import McpAccess
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.job_messages import OfflineJob
from coterie.agents.root_link.spawn_request import FORK, MemoryScope, Spawned
from coterie.agents.runtime.worktree import Worktree
from coterie.agents.settings import Settings, dump_settings, load_settings_dump, path_from_json
from coterie.mailbox.envelope import MessageId, new_message_id
from coterie.mailbox.validation import MessageDigest
from coterie.session_directory import MAIN

AGENT_ENTRY = "coterie.agents.runtime.agent_main:main"
"""Entry point of an agent process, as a name so that the root does not import the SDK."""


@attrs.frozen(kw_only=True)
class AgentWorkspace:
    """Directory in which an agent works."""

    directory: Path | None = None
    """Working directory; None for the project of the session."""
    worktree: Worktree | None = None
    """Worktree of this agent alone, which contains the directory; None without a worktree."""


@attrs.frozen(kw_only=True)
class Services:
    """Services of the session that an agent process connects to."""

    session_id: str = ""
    api_url: str | None = None
    """URL of the embedded server that plays the model; None for the real API."""
    mail_key: str | None = attrs.field(default=None, repr=False)
    """Key that signs the mail of the session, as returned by `SessionKeys.to_hex`; None for unsigned mail."""
    mcp: McpAccess | None = None
    """Access to the MCP servers of the session; None if no server is running."""
    can_prompt: bool = False
    """True if the user can be prompted for permissions."""


@attrs.frozen(kw_only=True)
class Incarnation:
    """State of the session at one start of an agent process."""

    number: int = 0
    """Number of the start; 0 before the first start."""
    is_resumed: bool = False
    """True if the agent began under an earlier root, so that its transcript may contain the task."""
    is_plan_approved: bool = False
    running_children: tuple[Spawned, ...] = ()
    """Children that an earlier incarnation spawned and that have not reported yet."""
    has_teammate: bool = False
    """True if an earlier incarnation spawned a teammate, which owes no report."""
    trusted_digests: tuple[MessageDigest, ...] = ()
    """Digests of messages that were in the mailbox when the root started; these need no signature."""


@attrs.frozen(kw_only=True)
class AgentSpec:
    """Everything that an agent is started with. Services and incarnation are set for each start."""

    name: str
    task: str
    """Task of a new conversation, or next user message of an existing one; empty to continue where the agent stopped.
    """
    model: str
    settings: Settings
    parent: str | None = None
    """Name of the agent that receives the report; None for the lead."""
    parent_settings: tuple[Settings, ...] = ()
    """Settings of the ancestors, nearest first."""
    report: MessageId = attrs.field(factory=new_message_id)
    """Message id of the report.

    The agent and, after a crash, the root use the same id, so that the report arrives once.
    """
    definition: str | None = None
    """Agent type; None for an agent without a definition."""
    fork: str | None = None
    """File of the fork point that the agent begins with; the task is then the directive of the fork."""
    is_teammate: bool = False
    """True if the agent waits for messages when its task is done."""
    plan: PlanPolicy | None = None
    """Approval that the agent needs before it may do more than read; None if it needs no approval."""
    memory: MemoryScope | None = None
    """Memory scope of the agent; None for the scope of its definition."""
    is_bare: bool = False
    """True if the agent runs without instruction files, memory, hooks and skills."""
    job: OfflineJob | None = None
    """Offline job that the agent runs instead of its task."""
    workspace: AgentWorkspace = AgentWorkspace()
    services: Services = Services()
    incarnation: Incarnation = Incarnation()

    @property
    def depth(self) -> int:
        """Number of ancestors."""
        return len(self.parent_settings)

    @property
    def directory(self) -> Path:
        """Working directory of the agent. Available once the agent process has replaced None by the project."""
        assert self.workspace.directory is not None, "the agent process sets it"
        return self.workspace.directory

    @property
    def is_lead(self) -> bool:
        """True for the lead of the session, the agent that the user talks to."""
        return self.name == MAIN

    @property
    def is_embedded(self) -> bool:
        """True if the embedded server plays the model."""
        return self.services.api_url is not None

    @property
    def has_instructions(self) -> bool:
        """True if the agent loads instruction files."""
        return self.settings.instructions.enabled and not self.is_bare

    @property
    def agent_type(self) -> str | None:
        """Agent type as hooks see it: the definition, or "fork" for a fork."""
        return self.definition if self.fork is None else FORK

    def to_bytes(self) -> bytes:
        """Encode the spec as one JSON object."""
        settings = {
            "settings": dump_settings(self.settings),
            "parent_settings": [dump_settings(each) for each in self.parent_settings],
        }
        return msgspec.json.encode(attrs.asdict(self, recurse=False) | settings, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "AgentSpec":
        """Decode the result of `to_bytes`."""
        members: dict[str, Any] = msgspec.json.decode(data)
        settings = {
            "settings": load_settings_dump(members["settings"]),
            "parent_settings": tuple(map(load_settings_dump, members["parent_settings"])),
        }
        types = {name: field.type for name, field in attrs.fields_dict(cls).items() if name in _NESTED}
        nested = {name: msgspec.convert(members[name], type_, dec_hook=path_from_json) for name, type_ in types.items()}
        return cls(**members | settings | nested)


_NESTED = ("plan", "job", "workspace", "services", "incarnation")
"""Fields that are JSON objects."""
