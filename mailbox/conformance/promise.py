"""A numbered promise of mail, and the function that holds a transport to it."""

from collections.abc import Awaitable, Callable
from typing import Literal

import attrs
import trio

from coterie.mailbox.conformance.post import OpenPlace, Place, Post, open_post
from coterie.mailbox.contract import Limits

TIME_LIMIT = 20.0
Need = Literal["tampering", "macs"]


class NotApplicable(Exception):
    """A transport cannot be held to a promise: what it speaks of does not exist there."""


@attrs.frozen(kw_only=True)
class Promise:
    """One promise; its function is named `promise_<number>_<what>`, and its docstring is the sentence."""

    number: int
    name: str
    sentence: str
    need: Need | None
    limits: Limits
    _test: Callable[[Post], Awaitable[None]]

    async def check(self, open_place: OpenPlace) -> None:
        """Raise `AssertionError` if a transport on such a place breaks it, `NotApplicable` if it cannot.

        Whatever else the transport raises comes through; `trio.TooSlowError` after 20 seconds.
        """
        with trio.fail_after(TIME_LIMIT):
            async with open_place() as place:
                self._check_applies(place)
                async with open_post(place, self.limits, open_place) as post:
                    await self._test(post)

    def _check_applies(self, place: Place) -> None:
        if self.need == "tampering" and place.tampering is None:
            raise NotApplicable("the place gives no tampering: stored messages cannot be changed past the transport")
        if self.need == "macs" and not place.has_macs:
            raise NotApplicable("the place has no MACs: the reader does not get the MAC that the sender made")


def promise(
    *, need: Need | None = None, limits: Limits | None = None
) -> Callable[[Callable[[Post], Awaitable[None]]], Promise]:
    """Make a promise of a function; *limits* are those of the transport that it gets."""

    def make(test: Callable[[Post], Awaitable[None]]) -> Promise:
        name: str = getattr(test, "__name__", "")
        return Promise(
            number=int(name.split("_")[1]),
            name=name,
            sentence=" ".join((test.__doc__ or "").split()),
            need=need,
            limits=limits or Limits(),
            test=test,
        )

    return make
