"""Mail of members that have ended permanently is dead-lettered exactly once."""

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
    """Two members, ada and bob, with their mail and dead letters."""

    root: Path
    roster: LocalRoster = attrs.field(factory=LocalRoster)
    clock: Clock = attrs.field(factory=Clock)

    def __attrs_post_init__(self) -> None:
        for name in ("ada", "bob"):
            self.roster.join(name)

    @property
    def mail(self) -> FileTransport:
        """A new transport, as a new process would open it."""
        return FileTransport(self.root / "mail", self.roster, None, self.clock, self.dead.add)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters, as a new process would open them."""
        return DeadLetters(self.root / "mail" / "dead")

    def dead_reasons(self) -> list[tuple[str, str]]:
        """Return reason and body of each dead letter."""
        return [(found.reason, found.envelope.body if found.envelope else "") for _, found in self.dead.pending()]

    async def send(self, *bodies: str, to: str = "ada") -> None:
        """Send messages from bob."""
        for sequence, body in enumerate(bodies):
            await self.mail.send(envelope(sequence, body, to=to))


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


async def test_mail_of_a_removed_member_is_dead_lettered_in_order(team: Team) -> None:
    await team.send("one", "two", "three")
    await team.send("for bob", to="bob")
    with pytest.raises(RecipientActive, match="'ada' is running and can still read it"):
        await dead_letter_abandoned(team.mail, team.dead, "ada")
    async with team.mail.open_inbox("ada", 1) as inbox:
        assert find_abandoned(team.mail) == {}
        team.roster.leave("ada")
        with pytest.raises(MailboxBusy):
            await dead_letter_abandoned(team.mail, team.dead, "ada")
        assert take_sequences(inbox) == [0, 1, 2]
    assert team.dead_reasons() == []
    backlog = find_abandoned(team.mail)["ada"]
    assert (backlog.messages, backlog.oldest) == (3, 1000.0)
    assert await dead_letter_abandoned(team.mail, team.dead, "ada") == 3
    assert team.dead_reasons() == [("recipient_ended", body) for body in ("one", "two", "three")]
    assert find_abandoned(team.mail) == {}
    assert team.mail.backlog("bob").messages == 1
    start = team.roster.join("ada").incarnation
    await team.mail.send(envelope(7, "new"))
    async with team.mail.open_inbox("ada", start) as inbox:
        assert take_sequences(inbox) == [7]


async def test_unknown_name_creates_no_mailbox(team: Team) -> None:
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
    """Roster on which ada rejoins at the call number *after*."""

    roster: LocalRoster
    after: int

    def members(self) -> Mapping[str, Member]:
        """As `Roster.members`."""
        self.after -= 1
        if self.after == 0:
            self.roster.join("ada")
        return self.roster.members()


async def test_member_that_rejoins_during_the_move_keeps_its_mail(team: Team) -> None:
    await team.send("one", "two")
    team.roster.leave("ada")
    mail = attrs.evolve(team.mail, roster=ComesBack(team.roster, after=2))
    with pytest.raises(RecipientActive):
        await dead_letter_abandoned(mail, team.dead, "ada")
    assert team.dead_reasons() == []
    async with team.mail.open_inbox("ada", 2) as inbox:
        assert take_sequences(inbox) == [0, 1]


@pytest.mark.parametrize("is_torn", [True, False])
async def test_crash_at_any_operation_loses_and_duplicates_no_dead_letter(
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
