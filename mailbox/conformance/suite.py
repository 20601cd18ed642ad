"""All promises, by number."""

from coterie.mailbox.conformance import acknowledging, burying, ordering, reading, refusing, storing, texts
from coterie.mailbox.conformance.promise import Promise

_MODULES = (storing, ordering, acknowledging, reading, refusing, texts, burying)

PROMISES: tuple[Promise, ...] = tuple(
    sorted(
        (value for module in _MODULES for value in vars(module).values() if isinstance(value, Promise)),
        key=lambda promise: promise.number,
    )
)
