"""How things stand at the gate, as facts for views."""

import attrs

from coterie.orchestrator.gate.budgets import Account, Amount, Limits


@attrs.frozen(kw_only=True)
class AccountStanding:
    """One budget at one moment."""

    limits: Limits
    spent: Amount
    estimated: Amount
    """The part of what is spent that is an upper bound."""
    reserved: Amount

    @classmethod
    def of(cls, account: Account) -> "AccountStanding":
        """How *account* stands now."""
        return cls(limits=account.limits, spent=account.spent, estimated=account.estimated, reserved=account.reserved)


@attrs.frozen(kw_only=True)
class AgentStanding:
    """One agent at the gate. Its budgets are shown also after it has ended."""

    name: str
    parent: str | None
    own: AccountStanding
    subtree: AccountStanding
    under_way: int
    """Calls admitted and not over."""
    waiting: int


@attrs.frozen(kw_only=True)
class Standing:
    """The whole gate at one moment."""

    session: AccountStanding
    agents: tuple[AgentStanding, ...]
    under_way: int
    waiting: int
    cool_down: float
    """Seconds until calls may start again; 0 when there is no cool-down."""
