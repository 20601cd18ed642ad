"""Budgets: accounts on which the cost of a call is reserved before it is sent."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

import attrs

from coterie.agents.errors import BudgetScope, BudgetSpent, BudgetUnit
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Usage


@attrs.frozen(kw_only=True)
class Amount:
    """Cost of calls in the two units of budgets."""

    dollars: Decimal = Decimal(0)
    tokens: int = 0

    @classmethod
    def of(cls, model: Model, usage: Usage) -> "Amount":
        """Return the cost of *usage* at the prices of *model*."""
        return cls(dollars=model.cost(usage), tokens=usage.total)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(dollars=self.dollars + other.dollars, tokens=self.tokens + other.tokens)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(dollars=self.dollars - other.dollars, tokens=self.tokens - other.tokens)


NO_COST = Amount()


@attrs.frozen(kw_only=True)
class BudgetLimits:
    """Limits of one budget; None means no limit. Raises `ValueError` if a limit is negative."""

    dollars: Decimal | None = None
    tokens: int | None = None

    def __attrs_post_init__(self) -> None:
        if (self.dollars or 0) < 0 or (self.tokens or 0) < 0:
            raise ValueError(f"a budget cannot be negative: {self}")


UNLIMITED = BudgetLimits()


@attrs.define(eq=False)
class Account:
    """Account of one budget: spent plus reserved stays within the limits, unless a call exceeds its reservation."""

    scope: BudgetScope
    name: str | None = None
    limits: BudgetLimits = UNLIMITED
    spent: Amount = NO_COST
    estimated: Amount = NO_COST
    """Part of `spent` that is an upper bound, because the exact usage is unknown."""
    reserved: Amount = NO_COST

    def has_room(self, need: Amount) -> bool:
        """True if *need* fits in addition to all reservations."""
        return self._exceeded(self.spent, self.reserved, need) is None

    def refusal(self, need: Amount) -> BudgetSpent | None:
        """Return the refusal if *need* cannot fit even when all running calls are free; None if it may fit."""
        unit = self._exceeded(self.spent, need)
        if unit is None:
            return None
        return BudgetSpent(
            budget=Decimal(getattr(self.limits, unit)),
            spent=Decimal(getattr(self.spent, unit)),
            reserve=Decimal(getattr(need, unit)),
            scope=self.scope,
            name=self.name,
            unit=unit,
        )

    def _exceeded(self, *amounts: Amount) -> BudgetUnit | None:
        if self.limits.dollars is not None and sum(each.dollars for each in amounts) > self.limits.dollars:
            return "dollars"
        if self.limits.tokens is not None and sum(each.tokens for each in amounts) > self.limits.tokens:
            return "tokens"
        return None

    def reserve(self, need: Amount) -> None:
        """Reserve *need*; the caller must have checked `has_room`."""
        self.reserved += need

    def settle(self, need: Amount, cost: Amount, *, is_estimated: bool) -> None:
        """Replace the reservation *need* by the actual *cost*."""
        self.reserved -= need
        self.spent += cost
        if is_estimated:
            self.estimated += cost


@attrs.frozen(kw_only=True)
class PriorSpending:
    """Spending of earlier roots of the same session."""

    session: Amount = NO_COST
    own: Mapping[str, Amount] = attrs.field(factory=dict)
    """Spending of each agent itself, by its name."""
    subtree: Mapping[str, Amount] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AgentAccounts:
    """Accounts of one agent."""

    own: Account
    subtree: Account
    """Account of the agent with all its descendants."""
    parent: str | None


@attrs.define(eq=False)
class BudgetAccounts:
    """All accounts of a session. The accounts of an agent are kept for its later incarnations."""

    session: Account = attrs.field(factory=lambda: Account("session"))
    agents: dict[str, AgentAccounts] = attrs.field(factory=dict)
    prior: PriorSpending = attrs.field(factory=PriorSpending)

    def open(self, name: str, parent: str | None, own: BudgetLimits | None, subtree: BudgetLimits | None) -> None:
        """Create the accounts of agent *name* if missing, and set those limits that are not None.

        Raises `ValueError` if the parent has no accounts, or *name* has another parent.
        """
        if parent is not None and parent not in self.agents:
            raise ValueError(f"unknown parent {parent!r} of agent {name!r}")
        if name not in self.agents:
            own_account = Account("agent", name, spent=self.prior.own.get(name, NO_COST))
            subtree_account = Account("subtree", name, spent=self.prior.subtree.get(name, NO_COST))
            self.agents[name] = AgentAccounts(own=own_account, subtree=subtree_account, parent=parent)
        accounts = self.agents[name]
        if accounts.parent != parent:
            raise ValueError(f"the parent of agent {name!r} is {accounts.parent!r}, not {parent!r}")
        accounts.own.limits = own or accounts.own.limits
        accounts.subtree.limits = subtree or accounts.subtree.limits

    def accounts_of(self, name: str) -> tuple[Account, ...]:
        """Return all accounts that a call of agent *name* is charged to, the narrowest first."""
        return (self.agents[name].own, *self._subtrees(name), self.session)

    def _subtrees(self, name: str | None) -> Iterator[Account]:
        while name is not None:
            accounts = self.agents[name]
            yield accounts.subtree
            name = accounts.parent


def refusal(accounts: Iterable[Account], need: Amount) -> BudgetSpent | None:
    """Return the first refusal of *need* by one of *accounts*; None if all may have room in time."""
    return next((refused for account in accounts if (refused := account.refusal(need)) is not None), None)
