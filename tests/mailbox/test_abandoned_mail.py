"""Mail of those who will not come back: it is buried once, and nobody else's is."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.contract import Member
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Recipient
from coterie.mailbox.errors import MailboxBusy, MailboxFailed, NameInvalid, UnknownRecipient
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.transports.abandoned_mail import RecipientActive, dead_letter_abandoned, find_abandoned
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import FailsFrom, envelope, take_sequences


@attrs.define(eq=False)
class Team:
    """Ada and Bob, their mail, and their dead."""

    root: Path
    roster: LocalRoster = attrs.field(factory=LocalRoster)
    clock: Clock = attrs.field(factory=Clock)

    def __attrs_post_init__(self) -> None:
        for name in ("ada", "bob"):
            self.roster.join(name)

    @property
    def mail(self) -> FileTransport:
        """As a process opens it that has just begun."""
        return FileTransport(self.root / "mail", self.roster, None, self.clock, self.dead.add)

    @property
    def dead(self) -> DeadLetters:
        """Likewise."""
        return DeadLetters(self.root / "mail" / "dead")

    def dead_reasons(self) -> list[tuple[str, str]]:
        """Why each died, and what it said."""
        return [(found.reason, found.envelope.body if found.envelope else "") for _, found in self.dead.pending()]

    async def send(self, *bodies: str, to: str = "ada") -> None:
        """From Bob."""
        for sequence, body in enumerate(bodies):
            await self.mail.send(envelope(sequence, body, to=to))


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


async def test_mail_of_somebody_who_left_is_found_and_buried_in_order(team: Team) -> None:
    await team.send("one", "two", "three")
    await team.send("for bob", to="bob")
    assert find_abandoned(team.mail) == {}
    team.roster.leave("ada")
    backlog = find_abandoned(team.mail)["ada"]
    assert (backlog.messages, backlog.oldest) == (3, 1000.0)
    assert await dead_letter_abandoned(team.mail, team.dead, "ada") == 3
    assert team.dead_reasons() == [("recipient_ended", body) for body in ("one", "two", "three")]
    assert find_abandoned(team.mail) == {}
    assert team.mail.backlog("bob").messages == 1


async def test_who_comes_back_gets_what_is_new_and_nothing_of_what_was_buried(team: Team) -> None:
    await team.send("old")
    team.roster.leave("ada")
    await dead_letter_abandoned(team.mail, team.dead, "ada")
    start = team.roster.join("ada").incarnation
    await team.mail.send(envelope(7, "new"))
    async with team.mail.open_inbox("ada", start) as inbox:
        assert take_sequences(inbox) == [7]


async def test_mail_of_somebody_who_has_ended_for_good_can_be_buried(team: Team) -> None:
    await team.send("one")
    team.roster.set_state("ada", "ended")
    assert find_abandoned(team.mail) == {}, "it may be resumed"
    assert await dead_letter_abandoned(team.mail, team.dead, "ada") == 1
    assert team.dead_reasons() == [("recipient_ended", "one")]
    assert await dead_letter_abandoned(team.mail, team.dead, "ada") == 0


async def test_mail_of_somebody_who_is_there_is_not_touched(team: Team) -> None:
    await team.send("one")
    with pytest.raises(RecipientActive, match="'ada' is running and reads its own mail"):
        await dead_letter_abandoned(team.mail, team.dead, "ada")
    assert (team.mail.backlog("ada").messages, team.dead_reasons()) == (1, [])


async def test_a_mailbox_that_is_being_read_is_left_to_its_reader(team: Team) -> None:
    await team.send("one")
    async with team.mail.open_inbox("ada", 1) as inbox:
        team.roster.leave("ada")
        with pytest.raises(MailboxBusy):
            await dead_letter_abandoned(team.mail, team.dead, "ada")
        assert take_sequences(inbox) == [0]
    assert team.dead_reasons() == []


async def test_a_name_that_nobody_had_gets_no_mailbox(team: Team) -> None:
    with pytest.raises(UnknownRecipient, match="did you mean ada"):
        await dead_letter_abandoned(team.mail, team.dead, "adda")
    for name in ("../ada", "dead"):
        with pytest.raises(NameInvalid):
            await dead_letter_abandoned(team.mail, team.dead, name)
    assert await dead_letter_abandoned(team.mail, team.dead, "bob") == 0, "who never had mail has none to bury"
    assert not (team.root / "mail").exists()


async def test_expired_corrupt_and_incarnation_bound_mail_keep_their_own_reason(team: Team) -> None:
    await team.mail.send(attrs.evolve(envelope(1, "late"), expires=1001.0))
    await team.mail.send(attrs.evolve(envelope(2, "for the first"), recipient=Recipient(name="ada", incarnation=1)))
    with (team.root / "mail" / "ada" / "000001.log").open("ab") as log:
        log.write(b"\n{garbage}\n")
    team.roster.leave("ada")
    assert await dead_letter_abandoned(team.mail, team.dead, "ada") == 3
    assert team.dead_reasons() == [("expired", "late"), ("recipient_ended", "for the first"), ("corrupt", "")]


@attrs.define(eq=False)
class ComesBack:
    """A roster to which Ada comes back when it has been asked so often."""

    roster: LocalRoster
    after: int

    def members(self) -> Mapping[str, Member]:
        """As `Roster.members`."""
        self.after -= 1
        if self.after == 0:
            self.roster.join("ada")
        return self.roster.members()


async def test_who_comes_back_meanwhile_gets_the_mail(team: Team) -> None:
    await team.send("one", "two")
    team.roster.leave("ada")
    mail = attrs.evolve(team.mail, roster=ComesBack(team.roster, after=2))
    with pytest.raises(RecipientActive):
        await dead_letter_abandoned(mail, team.dead, "ada")
    assert team.dead_reasons() == []
    async with team.mail.open_inbox("ada", 2) as inbox:
        assert take_sequences(inbox) == [0, 1]


@pytest.mark.parametrize("is_torn", [True, False])
async def test_dying_at_any_moment_loses_no_letter_and_buries_none_twice(
    tmp_path_factory: pytest.TempPathFactory, *, is_torn: bool
) -> None:
    bodies = [str(number) for number in range(4)]
    moments = 0
    while True:
        team = Team(tmp_path_factory.mktemp("team"))
        await team.send(*bodies)
        team.roster.leave("ada")
        dying = FailsFrom(moments + 1, is_torn)
        with file_faults(dying), contextlib.suppress(MailboxFailed):
            await dead_letter_abandoned(team.mail, team.dead, "ada")
        await dead_letter_abandoned(team.mail, team.dead, "ada")
        assert team.dead_reasons() == [("recipient_ended", body) for body in bodies]
        assert find_abandoned(team.mail) == {}
        if dying.count <= moments:
            break
        moments += 1
    assert moments > len(bodies), "each was once the last that was buried"
