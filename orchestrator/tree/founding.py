"""The members of a team are started for their lead; one that cannot be does not keep the others away."""

from collections.abc import Callable, Iterable

from coterie.agents.events import Event, LayerFailed
from coterie.agents.spawning import Spawner, SpawnRefused, SpawnRequest
from coterie.orchestrator.tree.announcing import Announcer


async def start_team(
    requests: Iterable[SpawnRequest], spawner: Spawner, lead: str, announcer: Announcer, tell: Callable[[Event], None]
) -> None:
    """Start what *requests* want, one after the other, as the *lead* would by *spawner*.

    Those without a task come first: whoever begins at once finds them there, and can write to them.
    Of one that cannot be started the lead is told by a message, and everybody by an event. Cancellation leaves those
    that have begun.
    """
    for request in sorted(requests, key=lambda request: bool(request.task)):
        try:
            await spawner.spawn(request)
        except SpawnRefused as exc:
            reason = f"{request.name} of your team could not be started. {exc.reason}"
            tell(LayerFailed(layer="team", reason=reason))
            await announcer.write(lead, reason)
