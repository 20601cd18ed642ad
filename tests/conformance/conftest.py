"""The server that the cases ask: each case is asked for whole replies, and for streams."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.cases import HOLDING, Api, open_api

MANNERS = ["whole", "streamed"]


@pytest.fixture(params=MANNERS)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server that says one word to everything."""
    async with open_api(is_streamed=request.param == "streamed") as opened:
        yield opened


@pytest.fixture
async def whole() -> AsyncIterator[Api]:
    """The same, for what is never streamed."""
    async with open_api() as opened:
        yield opened


@pytest.fixture(params=MANNERS)
async def holding(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server that can be made to hold a reply back."""
    async with open_api(HOLDING, is_streamed=request.param == "streamed") as opened:
        yield opened
