import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.mailbox.address import (
    LONGEST_NAME,
    MAIN,
    SOCKET_PATH_LIMIT,
    Everyone,
    OtherSession,
    Socket,
    check_name,
    parse_address,
)
from coterie.mailbox.errors import NameInvalid


@pytest.mark.parametrize("name", ["a", "main", "Researcher", "worker-2", "a_b", "0", "x" * LONGEST_NAME])
def test_valid_names_are_accepted(name: str) -> None:
    assert check_name(name) == name
    assert parse_address(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("x" * (LONGEST_NAME + 1), "at most 64 characters, not 65"),
        ("x" * 300, "not 300"),
        ("a/b", "a name has A-Z"),
        ("..", "begins with"),
        (".hidden", "begins with"),
        ("-rf", "begins with"),
        ("_x", "begins with"),
        ("a\0", "a name has A-Z"),
        ("a\n", "a name has A-Z"),
        ("a b", "a name has A-Z"),
        ("m\u0430in", "a name has A-Z"),  # the Cyrillic a
        ("\uff4dain", "a name has A-Z"),
        ("caf\u00e9", "a name has A-Z"),
        ("\u0661", "a name has A-Z"),  # a digit, but not a plain one
        ("main\u200b", "a name has A-Z"),
        ("dead", "are reserved"),
        ("Held", "are reserved"),
    ],
)
def test_invalid_names_are_refused(name: str, reason: str) -> None:
    with pytest.raises(NameInvalid, match=reason) as caught:
        check_name(name)
    assert caught.value.name == name
    assert len(str(caught.value)) < 250


def test_addresses_are_parsed_by_their_form() -> None:
    assert parse_address("main") == MAIN
    assert parse_address("*") == Everyone()
    assert parse_address("bridge:20260101-ab12") == OtherSession("20260101-ab12")
    assert parse_address("uds:/run/user/1/coterie/x.sock") == Socket(Path("/run/user/1/coterie/x.sock"))
    longest = "/" + "x" * (SOCKET_PATH_LIMIT - 1)
    assert parse_address(f"uds:{longest}") == Socket(Path(longest))


@pytest.mark.parametrize(
    "address",
    [
        "uds:",
        "uds:relative",
        "uds:/a\0b",
        f"uds:/{'x' * SOCKET_PATH_LIMIT}",
        "uds:/" + "\u00e9" * 60,
        "bridge:",
        "bridge:../x",
        "bridge:*",
        "http://x",
        "name:x",
        "**",
        " *",
    ],
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(NameInvalid):
        parse_address(address)


@settings(deadline=None)
@given(st.text() | st.text().map("uds:/{}".format) | st.text().map("bridge:{}".format))
def test_any_text_is_an_address_or_raises_name_invalid(text: str) -> None:
    with contextlib.suppress(NameInvalid):
        address = parse_address(text)
        assert address == Everyone() or ":" in text or address == check_name(text)
