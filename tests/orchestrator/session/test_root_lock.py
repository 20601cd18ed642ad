"""Record and lock of the root of a session."""

import os
from typing import Any

import attrs
import msgspec
import pytest

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.orchestrator.session.root_lock import (
    ROOT_RECORD,
    clear_stale_root,
    find_living_roots,
    find_root,
    has_dead_root,
    open_root_record,
)
from coterie.session_directory import SessionDirectory


def rewrite(session: SessionDirectory, **changes: object) -> None:
    path = session.directory / ROOT_RECORD
    facts: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(facts | changes))


def test_session_has_one_root_that_is_found_only_within_its_block(session: SessionDirectory) -> None:
    assert find_root(session) is None
    with open_root_record(session, Clock()) as root:
        assert root.pid == os.getpid()
        with pytest.raises(ConfigInvalid, match=f"already running in process {root.pid}"):
            open_root_record(session, Clock()).__enter__()
        assert find_root(session) == root
        assert find_living_roots() == {session.id: root}
        assert not has_dead_root(session)
    assert find_root(session) is None
    assert not has_dead_root(session)


@pytest.mark.parametrize("changes", [{"began": 1}, {"boot": "another"}, {"v": 2}, {"pid": "x"}])
def test_process_with_a_reused_pid_is_not_the_root(session: SessionDirectory, changes: dict[str, object]) -> None:
    with open_root_record(session, Clock()):
        rewrite(session, **changes)
        assert find_root(session) is None
        assert has_dead_root(session)


def test_the_record_of_a_killed_root_is_replaced_by_the_next(session: SessionDirectory) -> None:
    with open_root_record(session, Clock()):
        left = (session.directory / ROOT_RECORD).read_bytes()
    (session.directory / ROOT_RECORD).write_bytes(left)
    rewrite(session, began=1)
    with open_root_record(session, Clock()) as root:
        assert find_root(session) == root


def test_only_the_record_of_a_dead_root_is_cleared(session: SessionDirectory) -> None:
    with open_root_record(session, Clock()) as root:
        clear_stale_root(session)
        assert find_root(session) == root
        rewrite(session, began=1)
        clear_stale_root(session)
        assert not has_dead_root(session)


def test_replaced_root_keeps_the_record_of_its_successor(session: SessionDirectory) -> None:
    with open_root_record(session, Clock()) as root:
        rewrite(session, started=root.started + 1)
    assert find_root(session) == attrs.evolve(root, started=root.started + 1)
