"""Budgets: accounts on which the cost of a call is reserved before it is sent."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

import attrs

from coterie.agents.errors import BudgetScope, BudgetSpent, BudgetUnit
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Usage


@attrs.frozen(kw_only=True)
class Amount:
    """What calls cost, in both units that budgets are given in."""

    dollars: Decimal = Decimal(0)
    tokens: int = 0

    @classmethod
    def of(cls, model: Model, usage: Usage) -> "Amount":
        """What *usage* costs with *model*."""
        return cls(dollars=model.cost(usage), tokens=usage.total)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(dollars=self.dollars + other.dollars, tokens=self.tokens + other.tokens)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(dollars=self.dollars - other.dollars, tokens=self.tokens - other.tokens)


NO_COST = Amount()


@attrs.frozen(kw_only=True)
class BudgetLimits:
    """What may be spent at most; None is no limit. Making one raises `ValueError` for less than nothing."""

    dollars: Decimal | None = None
    tokens: int | None = None

    def __attrs_post_init__(self) -> None:
        if (self.dollars or 0) < 0 or (self.tokens or 0) < 0:
            raise ValueError(f"a budget cannot be less than nothing: {self}")


UNLIMITED = BudgetLimits()


@attrs.define(eq=False)
class Account:
    """One budget: spent and reserved together never pass its limits, unless a call costs more than it reserved."""

    scope: BudgetScope
    name: str | None = None
    limits: BudgetLimits = UNLIMITED
    spent: Amount = NO_COST
    estimated: Amount = NO_COST
    """The part of what is spent that is an upper bound, because nobody told what was really used."""
    reserved: Amount = NO_COST

    def has_room(self, need: Amount) -> bool:
        """Whether *need* fits beside everything that is reserved."""
        return self._exceeded(self.spent, self.reserved, need) is None

    def refusal(self, need: Amount) -> BudgetSpent | None:
        """Why *need* will never fit, even if every call under way turned out to be free; None if it may fit."""
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
        """Set *need* aside; the caller has seen that there is room."""
        self.reserved += need

    def settle(self, need: Amount, cost: Amount, *, is_estimated: bool) -> None:
        """Give back *need* and book *cost* instead."""
        self.reserved -= need
        self.spent += cost
        if is_estimated:
            self.estimated += cost


@attrs.frozen(kw_only=True)
class PriorSpending:
    """What was spent before, under another gate of the same session."""

    session: Amount = NO_COST
    own: Mapping[str, Amount] = attrs.field(factory=dict)
    """By the agent's name."""
    subtree: Mapping[str, Amount] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AgentAccounts:
    """The accounts that bear an agent's name."""

    own: Account
    subtree: Account
    """The agent's and those of all it has spawned, and so on down."""
    parent: str | None


@attrs.define(eq=False)
class BudgetAccounts:
    """All accounts of a session. An agent's accounts outlive it: a later incarnation goes on with them."""

    session: Account = attrs.field(factory=lambda: Account("session"))
    agents: dict[str, AgentAccounts] = attrs.field(factory=dict)
    prior: PriorSpending = attrs.field(factory=PriorSpending)

    def open(self, name: str, parent: str | None, own: BudgetLimits | None, subtree: BudgetLimits | None) -> None:
        """Make the accounts of *name*, or give those it has the limits that are not None.

        Raises `ValueError` when the parent has no accounts, or *name* was opened under another parent before.
        """
        if parent is not None and parent not in self.agents:
            raise ValueError(f"{parent!r}, the parent of {name!r}, is not known to the gate")
        if name not in self.agents:
            own_account = Account("agent", name, spent=self.prior.own.get(name, NO_COST))
            subtree_account = Account("subtree", name, spent=self.prior.subtree.get(name, NO_COST))
            self.agents[name] = AgentAccounts(own=own_account, subtree=subtree_account, parent=parent)
        accounts = self.agents[name]
        if accounts.parent != parent:
            raise ValueError(f"{name!r} belongs to {accounts.parent!r}, not to {parent!r}")
        accounts.own.limits = own or accounts.own.limits
        accounts.subtree.limits = subtree or accounts.subtree.limits

    def accounts_of(self, name: str) -> tuple[Account, ...]:
        """Every account that a call of *name* is booked on, the narrowest first."""
        return (self.agents[name].own, *self._subtrees(name), self.session)

    def _subtrees(self, name: str | None) -> Iterator[Account]:
        while name is not None:
            accounts = self.agents[name]
            yield accounts.subtree
            name = accounts.parent


def refusal(accounts: Iterable[Account], need: Amount) -> BudgetSpent | None:
    """The first refusal among *accounts*, or None when each of them may bear *need* in time."""
    return next((refused for account in accounts if (refused := account.refusal(need)) is not None), None)
