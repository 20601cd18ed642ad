"""Budgets in dollars: on its accounts, the maximum price of a model call is reserved before the call is sent."""

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
    """Name of the parent of the agent whose account this is; None for the lead (first agent) and the session."""
    estimated: Decimal = attrs.field(default=NO_COST, init=False)
    """Part of `spent` from calls whose exact usage is unknown, so that their maximum price was charged."""
    reserved: Decimal = attrs.field(default=NO_COST, init=False)

    def has_room(self, need: Decimal) -> bool:
        """Return True if *need* dollars fit into the budget in addition to everything spent and reserved."""
        return self.limit is None or self.spent + self.reserved + need <= self.limit

    def refusal(self, need: Decimal) -> BudgetSpent | None:
        """Return the refusal if *need* cannot fit even when all running calls are free; None if it may fit."""
        if self.limit is None or self.spent + need <= self.limit:
            return None
        return BudgetSpent(budget=self.limit, spent=self.spent, reserve=need, scope=self.scope, name=self.name)

    def reserve(self, need: Decimal) -> None:
        """Reserve *need* dollars for a call that starts. Check `has_room` first."""
        self.reserved += need

    def settle(self, need: Decimal, cost: Decimal, *, is_estimated: bool) -> None:
        """Replace the reservation of *need* dollars by the actual *cost*, when the call has ended."""
        self.reserved -= need
        self.spent += cost
        if is_estimated:
            self.estimated += cost


@attrs.frozen(kw_only=True)
class PriorSpending:
    """Dollars that were spent under earlier root (supervisor) processes of the same session."""

    session: Decimal = NO_COST
    subtree: Mapping[str, Decimal] = attrs.field(factory=dict)
    """Dollars spent by each agent with its descendants, by the name of the agent."""


@attrs.define(eq=False)
class BudgetAccounts:
    """All budget accounts of a session. The account of an agent is kept when its process ends and starts again."""

    session: Account = attrs.field(factory=lambda: Account("session"))
    agents: dict[str, Account] = attrs.field(factory=dict)
    """Account of each agent together with all its descendants, by the name of the agent."""
    prior: PriorSpending = attrs.field(factory=PriorSpending)

    def open(self, name: str, parent: str | None, limit: Decimal | None) -> None:
        """Create the account of agent *name* if it has none, and set the *limit* unless it is None.

        Raises `ValueError` if *parent* has no account, if *name* has another parent, or for a negative limit.
        """
        if parent is not None and parent not in self.agents:
            raise ValueError(f"the parent {parent!r} of agent {name!r} has no budget account; add the parent first")
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
