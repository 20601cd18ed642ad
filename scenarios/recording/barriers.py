"""Signals between scripted agents that keep the recorded order of messages.

A barrier never turns the time of the session around: what waits came later than what it waits for. So no two wait for
each other.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import PlanApprovalRequest
from coterie.scenarios.recording.transcript_turns import AgentTurns, ModelTurn, RecordedDelivery

MOMENT = 1.0
"""Seconds in which a report is stored once the last reply of who reports was sent: nobody tells the server of it."""

Lanes = Mapping[str, list[dict[str, Any]]]


@attrs.define(eq=False, kw_only=True)
class Barriers:
    """Puts signals into the lanes of a script."""

    lanes: Lanes
    voices: Mapping[str, AgentTurns]
    letters: Mapping[str, Envelope]
    """All mail that was stored, by id."""
    doubts: list[str] = attrs.field(factory=list)
    """What a play may do otherwise."""

    def put(self) -> None:
        """Add all that are needed."""
        for name, voice in self.voices.items():
            replies = {said.turn: said for said in voice.replies}
            for turn, group in _by_turn(voice).items():
                if turn in replies and turn < max(replies):
                    self._order(name, replies[turn], group)

    def _order(self, name: str, before: ModelTurn, group: list[RecordedDelivery]) -> None:
        """Let *group* come to *name* behind its reply *before*, and ahead of the next.

        What a call waited for is in order by itself, and so is what came from the agent that it waited for.
        """
        waited_for = {author for author, _ in self._letters([each for each in group if not each.is_shown])}
        group = [each for each in group if each.is_shown]
        sent = [
            (author, said)
            for author, letter in self._letters(group)
            if author not in waited_for and (said := self._sending(author, letter))
        ]
        for sender, said in sent:
            if before.at < said.at:
                self._wait((sender, said.turn), "until", self._raised(name, before.turn, "signal"))
            elif before.asked < said.at:
                self._wait((sender, said.turn), "until", self._raised(name, before.turn, "asked"))
        # Who waits for mail is woken by the first message; only several at once, or a busy recipient, are a race.
        if before.calls or len(group) > 1:
            for one, other in pairwise(sent):
                if one[0] != other[0]:
                    self._hold(*other, *one)
            for sender, said in sent:
                if not self._hold(name, before, sender, said):
                    self.doubts.append(
                        f"{sender} wrote to {name} while the calls of its turn {before.turn} ran: "
                        "it may come a turn later"
                    )

    def _hold(self, name: str, held: ModelTurn, sender: str, said: ModelTurn) -> bool:
        """Keep the reply *held* back until what *sender* sent with *said* is stored; whether that was so before."""
        later = next((each for each in self.voices[sender].replies if each.turn == said.turn + 1), None)
        if later is not None and later.asked < held.at:
            self._wait((name, held.turn), "until", self._raised(sender, later.turn, "asked"))
        elif said.at < held.at:
            self._wait((name, held.turn), "until", self._raised(sender, said.turn, "signal"))
            self.lanes[name][held.turn - 1]["delay"] = MOMENT
        else:
            return False
        return True

    def _letters(self, group: list[RecordedDelivery]) -> Iterator[tuple[str, Envelope]]:
        """What was delivered, with the agent that it is from."""
        for delivery in group:
            letter = self.letters.get(delivery.id)
            if letter is not None and (author := _author(letter)) in self.voices:
                yield author, letter

    def _sending(self, author: str, letter: Envelope) -> ModelTurn | None:
        """The reply by which *letter* was sent, or behind which its author ended."""
        replies = self.voices[author].replies
        return next((said for said in reversed(replies) if said.at <= letter.created), None)

    def _raised(self, name: str, turn: int, key: str) -> str:
        signal = f"{name}-{turn}" if key == "signal" else f"{name}-{turn}-asked"
        self._wait((name, turn), key, signal)
        return signal

    def _wait(self, place: tuple[str, int], key: str, signal: str) -> None:
        name, turn = place
        reply = self.lanes[name][turn - 1]
        known = reply.get(key, [])
        reply[key] = [*known, *([] if signal in known else [signal])]


def _author(letter: Envelope) -> str:
    """Who is behind *letter*: of a plan that the root passes on, the agent whose it is."""
    if letter.kind != PlanApprovalRequest.kind:
        return letter.sender.name
    return PlanApprovalRequest.from_body(letter.body).agent or letter.sender.name


def _by_turn(voice: AgentTurns) -> dict[int, list[RecordedDelivery]]:
    groups: defaultdict[int, list[RecordedDelivery]] = defaultdict(list)
    for delivery in voice.deliveries:
        if delivery.turn:
            groups[delivery.turn].append(delivery)
    return groups
