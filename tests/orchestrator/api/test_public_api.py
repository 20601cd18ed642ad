"""Public names of `coterie`: loaded on first use, and typed."""

from decimal import Decimal
from typing import assert_type

import pytest

import coterie
from coterie.orchestrator.api import public

RENAMED: dict[str, str] = vars(coterie)["_RENAMED"]


def test_every_public_name_exists_and_is_listed() -> None:
    for name in public.__all__:
        assert getattr(coterie, name) is not None
        assert name in dir(coterie)
    with pytest.raises(AttributeError, match="no attribute 'opn_session'"):
        coterie.opn_session  # type: ignore[attr-defined]  # noqa: B018 - which shows that types are not anything


def test_a_renamed_name_gives_the_new_class_and_warns() -> None:
    assert sorted(RENAMED) == [
        *("AgentGlance", "ForSession", "Observed", "Once", "Progress", "Refusal", "Result", "Started", "Text")
    ]
    for old, new in RENAMED.items():
        with pytest.warns(DeprecationWarning, match=rf"^coterie\.{old} is now coterie\.{new}$") as warned:
            assert getattr(coterie, old) is getattr(coterie, new)
        assert [each.filename for each in warned] == [__file__]
        assert old not in dir(coterie)


async def _a_program() -> None:
    """Never run: mypy checks it, as it would a user's."""
    async with coterie.open_session("Go.", team="team.toml", max_budget_usd=1) as session:
        assert_type(session, coterie.LiveSession)
        async with session.events() as events:
            async for observed in events:
                assert_type(observed, coterie.SessionEvent)
                if isinstance(observed.event, coterie.ApprovalAsked):
                    assert_type(observed.event.id, str)
        assert_type((await session.spawn("Look.", name="scout")).incarnation, int)
        assert_type(await session.send("scout", "Look again."), coterie.Receipt)
        assert_type(await session.approvals(), tuple[coterie.Approval, ...])
        assert_type((await session.wait()).cost, Decimal)
    coterie.run_sync("Go.", modle="opus")  # type: ignore[call-arg]
