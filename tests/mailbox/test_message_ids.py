import time
import uuid

from coterie.mailbox.envelope import new_message_id


def test_message_id_is_a_uuid_of_version_7() -> None:
    parsed = uuid.UUID(new_message_id())
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_message_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_message_id()).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000


def test_message_ids_sort_by_time() -> None:
    earlier = new_message_id()
    while uuid.UUID(later := new_message_id()).int >> 80 == uuid.UUID(earlier).int >> 80:
        pass
    assert earlier < later


def test_ids_are_unique() -> None:
    assert len({new_message_id() for _ in range(20_000)}) == 20_000
