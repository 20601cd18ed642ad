"""Servers for the cases: each case runs with whole replies, and with streams."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.cases import HOLDING, Api, open_api

MANNERS = ["whole", "streamed"]


@pytest.fixture(params=MANNERS)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server that replies with one word to every request."""
    async with open_api(is_streamed=request.param == "streamed") as opened:
        yield opened


@pytest.fixture
async def whole() -> AsyncIterator[Api]:
    """The same, without streams."""
    async with open_api() as opened:
        yield opened


@pytest.fixture(params=MANNERS)
async def holding(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server that can hold a reply back."""
    async with open_api(HOLDING, is_streamed=request.param == "streamed") as opened:
        yield opened
