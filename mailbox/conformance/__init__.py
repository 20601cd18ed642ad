"""Conformance suite that every mail transport must pass. It needs no test framework.

To test a transport, write a `TransportFactory` for it. Then run `await promise.check(open_factory)` for each promise in
`PROMISES`.
"""

import itertools

from coterie.mailbox.conformance import (
    acknowledge_promises,
    dead_letter_promises,
    order_promises,
    reader_promises,
    refusal_promises,
    send_promises,
)
from coterie.mailbox.conformance.harness import Promise, promises_in

_MODULES = (
    send_promises,
    order_promises,
    acknowledge_promises,
    reader_promises,
    refusal_promises,
    dead_letter_promises,
)

PROMISES: tuple[Promise, ...] = tuple(
    sorted(itertools.chain(*map(promises_in, _MODULES)), key=lambda promise: promise.number)
)
