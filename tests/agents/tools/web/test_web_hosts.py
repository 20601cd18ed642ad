"""Tests of host lists, URLs and public addresses."""

from ipaddress import ip_address

import pytest

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.web.hosts import HostList, WebAddress, is_public
from coterie.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("listed", "url", "is_allowed"),
    [
        ("example.org", "https://example.org/x?y=1", True),
        ("example.org", "http://example.org", True),
        ("Example.ORG", "https://EXAMPLE.org./", True),
        ("example.org", "https://www.example.org", False),
        ("example.org", "https://example.org.evil.net", False),
        ("example.org", "https://example.org:8443", False),
        ("example.org:8443", "https://example.org:8443", True),
        ("example.org:8443", "https://example.org", False),
        ("*.example.org", "https://a.b.example.org", True),
        ("*.example.org", "https://example.org", False),
        ("*.example.org", "https://evilexample.org", False),
        ("*", "https://anything.net", True),
        ("*", "https://93.184.215.14", False),
        ("127.0.0.1:80", "http://127.0.0.1", True),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://10.1.2.3:8080", False),
        ("[::1]:8080", "http://[::1]:8080/x", True),
        ("xn--bcher-kva.example", "https://bücher.example", True),
    ],
)
def test_host_list_matches_host_and_port(listed: str, url: str, *, is_allowed: bool) -> None:
    assert HostList.parse([listed]).allows(WebAddress.parse(url)) is is_allowed


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org", "begins with https://"),
        ("file:///etc/passwd", "is not a valid URL"),
        ("example.org", "is not a valid URL"),
        ("https://", "the host is missing"),
        ("https://user:secret@example.org/", "user name or password"),
        ("https://example.org\\@evil.net/", "user name or password"),
        ("https://example.org/a b", "unescaped characters"),
        ("https://example.org/\n", "unescaped characters"),
        ("https://example.org:99999/", "is not a valid URL"),
        ("https://exa%6dple.org/", "not a valid host name"),
        (f"https://example.org/{'x' * 2000}", "longer than"),
    ],
)
def test_invalid_addresses_are_refused(url: str, reason: str) -> None:
    with pytest.raises(ToolFailed) as refused:
        WebAddress.parse(url)
    assert reason in refused.value.reason
    assert "secret" not in refused.value.reason


@pytest.mark.parametrize(
    "text", ["http://example.org", "exa mple", "a/b", "example.org:x", "bücher.example", "*.*.org", ".org", ""]
)
def test_invalid_host_entry_is_refused_with_its_source(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"settings\.toml.*which is not a host; write docs\.python\.org") as refused:
        HostList.parse(["ok.org", text], ["settings.toml", "settings.toml"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "place",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "0.0.0.1", "224.0.0.1"),
        *("::1", "fe80::1", "fd00::1", "::", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
    ],
)
def test_private_address_is_not_public(place: str) -> None:
    assert not is_public(ip_address(place))


def test_internet_address_is_public() -> None:
    public = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14")
    assert all(is_public(ip_address(place)) for place in public)
