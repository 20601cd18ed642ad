"""Spec (start parameters) of an agent, which the supervisor in the root process builds for the agent process."""

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
"""Entry point of an agent process as `module:function`, so that the root process need not import it and the SDK."""


@attrs.frozen(kw_only=True)
class AgentWorkspace:
    """Working directory of an agent, and its git worktree, if it has one."""

    directory: Path | None = None
    """Working directory of the agent; None for the project directory of the session."""
    worktree: Worktree | None = None
    """Git worktree that only this agent uses and that contains `directory`; None if it has no worktree of its own."""


@attrs.frozen(kw_only=True)
class Services:
    """Parameters with which an agent process uses services of its session: model API, mail, MCP servers, prompts."""

    session_id: str = ""
    api_url: str | None = None
    """URL of the embedded server, which imitates the model API with scripted replies; None for the real API."""
    mail_key: str | None = attrs.field(default=None, repr=False)
    """Key that signs the messages of the session, in hexadecimal (`SessionKeys.to_hex`); None for unsigned messages."""
    mcp: McpAccess | None = None
    """Access to the MCP servers (external servers of tools) of the session; None if no server is running."""
    can_prompt: bool = False
    """True if a user can be asked to allow tool calls, now or later."""


@attrs.frozen(kw_only=True)
class Incarnation:
    """Data for one start of an agent process: its number, and the state that earlier starts of the same agent left."""

    number: int = 0
    """Number of the start, counted over restarts of the agent from 1; 0 before the first start."""
    is_resumed: bool = False
    """True if the agent began under an earlier root process, so that its transcript may contain the task already."""
    is_plan_approved: bool = False
    running_children: tuple[Spawned, ...] = ()
    """Sub-agents, not teammates, of earlier processes of this agent; they work, or the root will resume them."""
    has_teammate: bool = False
    """True if an earlier process of this agent started a teammate, which stays for messages and sends no report."""
    trusted_digests: tuple[MessageDigest, ...] = ()
    """Digests of messages that were in the agent's mailbox when the root process started; these need no signature."""


@attrs.frozen(kw_only=True)
class AgentSpec:
    """Start parameters of one agent. For each start of its process, the root updates `task`, `services` and others."""

    name: str
    task: str
    """Task of a new agent, or next user message of a resumed one; empty to continue where the agent stopped."""
    model: str
    settings: Settings
    parent: str | None = None
    """Name of the agent that started this one and gets its report; None for the lead (first agent of the session)."""
    parent_settings: tuple[Settings, ...] = ()
    """Settings of the agents above this one, parent first; this agent never has more permissions than these allow."""
    report: MessageId = attrs.field(factory=new_message_id)
    """Message id of the agent's report to its parent.

    If the agent crashes, the root process reports with the same id, so that the parent gets only one report.
    """
    definition: str | None = None
    """Name of the agent type, such as `reviewer`, whose definition the agent uses; None for an agent without a type."""
    fork: str | None = None
    """File with the parent's conversation (fork point) with which a fork begins; None if the agent is not a fork."""
    is_teammate: bool = False
    """True if the agent is a teammate: it waits for messages when its task is done, until it is shut down."""
    plan: PlanPolicy | None = None
    """Policy for the plan that must be approved before the agent may do more than read; None if it needs no plan."""
    memory: MemoryScope | None = None
    """Scope of the memory of the agent's type: user, project or local; None for the scope in its definition."""
    is_bare: bool = False
    """True if the agent runs without instruction files, memory, hooks, skills and MCP servers."""
    job: OfflineJob | None = None
    """Offline job, such as a compaction, that the agent runs instead of a task; None to run the task."""
    workspace: AgentWorkspace = AgentWorkspace()
    services: Services = Services()
    incarnation: Incarnation = Incarnation()

    @property
    def depth(self) -> int:
        """Number of agents above this one: its parent, the parent of its parent, and so on; 0 for the lead."""
        return len(self.parent_settings)

    @property
    def directory(self) -> Path:
        """Working directory of the agent. Available in the agent process, after `complete_spec` has set it."""
        assert self.workspace.directory is not None, "the agent process sets it"
        return self.workspace.directory

    @property
    def is_lead(self) -> bool:
        """True if the agent is the lead, the first agent of the session, to which the user talks."""
        return self.name == MAIN

    @property
    def is_embedded(self) -> bool:
        """True if the embedded server (imitation of the model API with scripted replies) is used instead of the API."""
        return self.services.api_url is not None

    @property
    def has_instructions(self) -> bool:
        """True if the agent loads instruction files such as `CLAUDE.md`."""
        return self.settings.instructions.enabled and not self.is_bare

    @property
    def agent_type(self) -> str | None:
        """Agent type for hooks (commands of the user at events): name of the definition, "fork" for a fork, or None."""
        return self.definition if self.fork is None else FORK

    def to_bytes(self) -> bytes:
        """Return the spec as one JSON object, to be passed to the agent process."""
        settings = {
            "settings": dump_settings(self.settings),
            "parent_settings": [dump_settings(each) for each in self.parent_settings],
        }
        return msgspec.json.encode(attrs.asdict(self, recurse=False) | settings, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "AgentSpec":
        """Return the spec from *data*, the JSON that `to_bytes` returned."""
        members: dict[str, Any] = msgspec.json.decode(data)
        settings = {
            "settings": load_settings_dump(members["settings"]),
            "parent_settings": tuple(map(load_settings_dump, members["parent_settings"])),
        }
        types = {name: field.type for name, field in attrs.fields_dict(cls).items() if name in _NESTED}
        nested = {name: msgspec.convert(members[name], type_, dec_hook=path_from_json) for name, type_ in types.items()}
        return cls(**members | settings | nested)


_NESTED = ("plan", "job", "workspace", "services", "incarnation")
"""Fields of `AgentSpec` that `from_bytes` converts from JSON objects to their types; settings are converted apart."""
