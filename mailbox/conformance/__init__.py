"""One suite that every transport of mail must pass; it needs no test framework.

Write a `Place` for the transport, then `await promise.check(open_place)` for each of `PROMISES`.
"""

from coterie.mailbox.conformance.post import OpenPlace, Parts, Place, Tampering
from coterie.mailbox.conformance.promise import NotApplicable, Promise
from coterie.mailbox.conformance.suite import PROMISES

__all__ = ["PROMISES", "NotApplicable", "OpenPlace", "Parts", "Place", "Promise", "Tampering"]
