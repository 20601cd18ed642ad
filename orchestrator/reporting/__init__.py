"""One page about a session: `gather` reads its files, `render_page` shows them, `to_mapping` makes JSON of them."""

from coterie.orchestrator.reporting.facts import SessionFacts
from coterie.orchestrator.reporting.gathering import gather
from coterie.orchestrator.reporting.mapping import to_mapping
from coterie.orchestrator.reporting.page import GENERATOR, HEAD_BYTES, render_page

__all__ = ["GENERATOR", "HEAD_BYTES", "SessionFacts", "gather", "render_page", "to_mapping"]
