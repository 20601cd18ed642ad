"""Budgets: accounts on which the cost of a call is reserved before it is sent. All amounts are dollars."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

import attrs

from coterie.agents.errors import BudgetScope, BudgetSpent

NO_COST = Decimal(0)


def _check_limit(_account: object, _field: object, limit: Decimal | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"a budget cannot be negative: {limit}")


@attrs.define(eq=False)
class Account:
    """Account of one budget: spent plus reserved stays within the limit, unless a call exceeds its reservation."""

    scope: BudgetScope
    name: str | None = None
    limit: Decimal | None = attrs.field(default=None, validator=_check_limit)
    """Maximum dollars; None for no limit. Setting a negative limit raises `ValueError`."""
    spent: Decimal = NO_COST
    parent: str | None = None
    """Parent of the agent whose account this is."""
    estimated: Decimal = attrs.field(default=NO_COST, init=False)
    """Part of `spent` that is an upper bound, because the exact usage is unknown."""
    reserved: Decimal = attrs.field(default=NO_COST, init=False)

    def has_room(self, need: Decimal) -> bool:
        """True if *need* fits in addition to all reservations."""
        return self.limit is None or self.spent + self.reserved + need <= self.limit

    def refusal(self, need: Decimal) -> BudgetSpent | None:
        """Return the refusal if *need* cannot fit even when all running calls are free; None if it may fit."""
        if self.limit is None or self.spent + need <= self.limit:
            return None
        return BudgetSpent(budget=self.limit, spent=self.spent, reserve=need, scope=self.scope, name=self.name)

    def reserve(self, need: Decimal) -> None:
        """Reserve *need*; the caller must have checked `has_room`."""
        self.reserved += need

    def settle(self, need: Decimal, cost: Decimal, *, is_estimated: bool) -> None:
        """Replace the reservation *need* by the actual *cost*."""
        self.reserved -= need
        self.spent += cost
        if is_estimated:
            self.estimated += cost


@attrs.frozen(kw_only=True)
class PriorSpending:
    """Spending of earlier roots of the same session."""

    session: Decimal = NO_COST
    subtree: Mapping[str, Decimal] = attrs.field(factory=dict)
    """Spending of each agent with its descendants, by its name."""


@attrs.define(eq=False)
class BudgetAccounts:
    """All accounts of a session. The accounts of an agent are kept for its later incarnations."""

    session: Account = attrs.field(factory=lambda: Account("session"))
    agents: dict[str, Account] = attrs.field(factory=dict)
    """Account of each agent with all its descendants, by its name."""
    prior: PriorSpending = attrs.field(factory=PriorSpending)

    def open(self, name: str, parent: str | None, limit: Decimal | None) -> None:
        """Create the account of agent *name* if missing, and set its limit unless *limit* is None.

        Raises `ValueError` if the parent has no account, if *name* has another parent, or for a negative limit.
        """
        if parent is not None and parent not in self.agents:
            raise ValueError(f"unknown parent {parent!r} of agent {name!r}")
        if name not in self.agents:
            spent = self.prior.subtree.get(name, NO_COST)
            self.agents[name] = Account("subtree", name, spent=spent, parent=parent)
        account = self.agents[name]
        if account.parent != parent:
            raise ValueError(f"the parent of agent {name!r} is {account.parent!r}, not {parent!r}")
        if limit is not None:
            account.limit = limit

    def accounts_of(self, name: str) -> tuple[Account, ...]:
        """Return all accounts that a call of agent *name* is charged to, the narrowest first."""
        return (*self._subtrees(name), self.session)

    def _subtrees(self, name: str | None) -> Iterator[Account]:
        while name is not None:
            account = self.agents[name]
            yield account
            name = account.parent
