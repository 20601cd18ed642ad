"""Conformance suite that every mail transport must pass; it needs no test framework.

Write a `TransportFactory` for the transport, then `await promise.check(open_factory)` for each of `PROMISES`.
"""

from coterie.mailbox.conformance import (
    acknowledge_promises,
    body_promises,
    dead_letter_promises,
    order_promises,
    reader_promises,
    refusal_promises,
    send_promises,
)
from coterie.mailbox.conformance.harness import (
    NotApplicable,
    OpenTransportFactory,
    Promise,
    Tampering,
    TransportFactory,
    TransportParts,
)

_MODULES = (
    send_promises,
    order_promises,
    acknowledge_promises,
    reader_promises,
    refusal_promises,
    body_promises,
    dead_letter_promises,
)

PROMISES: tuple[Promise, ...] = tuple(
    sorted(
        (value for module in _MODULES for value in vars(module).values() if isinstance(value, Promise)),
        key=lambda promise: promise.number,
    )
)

__all__ = [
    "PROMISES",
    "NotApplicable",
    "OpenTransportFactory",
    "Promise",
    "Tampering",
    "TransportFactory",
    "TransportParts",
]
