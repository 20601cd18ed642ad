"""What an agent is at, in a few words of a small model, while it works.

The small model sees a digest of the work, which only grows, so that all but its end is read from the model's own cache.
"""

from coterie.agents.progress.digest import Digest, digest_size
from coterie.agents.progress.impatience import GateBusy, ImpatientGate
from coterie.agents.progress.summariser import PURPOSE, Summariser, open_summaries

__all__ = ["PURPOSE", "Digest", "GateBusy", "ImpatientGate", "Summariser", "digest_size", "open_summaries"]
