"""How full an agent's context window is, from what the last reply reported and an estimate of what came since."""

import attrs

from coterie.agents.conversation import Conversation
from coterie.agents.tokens import Thresholds, estimate_block
from coterie.agents.usage import Usage


@attrs.define(eq=False)
class WindowMeter:
    """Counts the tokens of one conversation; a count costs what was added since the one before."""

    thresholds: Thresholds
    _tokens: int = 0
    _counted: int = 0
    """How many segments `_tokens` covers."""
    _epoch: int = 0
    _cached: int | None = None

    def heard(self, usage: Usage, conversation: Conversation) -> None:
        """A reply has reported *usage*, and *conversation* ends with it."""
        self.resume(usage, len(conversation), conversation.epoch)

    def resume(self, usage: Usage, counted: int, epoch: int) -> None:
        """Go on from a reply that reported *usage* when the *epoch* had *counted* segments."""
        self._tokens, self._counted, self._epoch = usage.total, counted, epoch
        self._cached = usage.prompt - usage.input

    def tokens(self, conversation: Conversation) -> int:
        """Tokens that the next request will hold; after a rewrite all of them are an estimate."""
        if conversation.epoch != self._epoch:
            self._tokens, self._counted, self._epoch, self._cached = 0, 0, conversation.epoch, None
        for index in range(self._counted, len(conversation)):
            self._tokens += estimate_block(conversation.prefix[index].data)
        self._counted = len(conversation)
        return self._tokens

    def cached(self, conversation: Conversation) -> int | None:
        """Tokens that the last reply left in the cache; None before one, and after a rewrite."""
        return self._cached if conversation.epoch == self._epoch else None
