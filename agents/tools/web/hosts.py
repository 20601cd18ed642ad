"""Hosts from which the WebFetch tool may fetch, parsing of URLs, and resolution of host names to IP addresses."""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.settings import Settings
from coterie.errors import ConfigInvalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PORTS = {"http": 80, "https": 443}
MAX_URL_LENGTH = 2_000
"""Maximum number of characters in a URL; a longer URL is refused."""
EVERY_HOST = "*"
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_ENTRY = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?")

MAX_ADDRESSES = 4
"""Maximum number of IP addresses of one host to which a connection is tried."""


@attrs.frozen(kw_only=True)
class WebAddress:
    """Parsed http or https URL of a page to fetch."""

    scheme: str
    host: str
    """Host name in lower case, in ASCII form (IDNA), or an IP address; an IPv6 address is without brackets."""
    port: int
    rest: str
    """Path and query of the URL, such as `/search?q=a`; at least `/`."""

    @classmethod
    def parse(cls, url: str) -> "WebAddress":
        """Parse *url*. Raises `ToolFailed` if invalid, too long, not http or https, or with user name or password."""
        if len(url) > MAX_URL_LENGTH or not url.isprintable() or " " in url:
            raise ToolFailed(f"The URL is longer than {MAX_URL_LENGTH} characters or has unescaped characters; fix it")
        try:
            parts = urlsplit(url)
            host, port = _host(parts), parts.port
        except ValueError as exc:
            raise ToolFailed(f"{url} is not a valid URL. Correct it: {exc}") from exc
        if parts.scheme not in PORTS:
            raise ToolFailed(f"{url} cannot be fetched. Give a URL that begins with https:// or http://.")
        if parts.username is not None or parts.password is not None:
            raise ToolFailed("A URL with a user name or password cannot be fetched. Remove them.")
        rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(scheme=parts.scheme, host=host, port=port or PORTS[parts.scheme], rest=rest)

    @property
    def netloc(self) -> str:
        """Host and port as in the HTTP header Host, such as `localhost:8000`; without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.rest}"


@attrs.frozen(kw_only=True)
class HostList:
    """List of the hosts from which WebFetch may fetch pages, parsed from the setting `web.hosts` of one agent."""

    entries: tuple[tuple[str | Network, int | None], ...]
    """Pairs of a name, pattern or network, and a port. Port None means 80 for http and 443 for https."""

    @classmethod
    def parse(cls, texts: Sequence[str], sources: Iterable[str] = ()) -> "HostList":
        """Parse *texts*, such as `*.example.org`. Raises `ConfigInvalid` that names a bad text's file of *sources*."""
        named = [*sources, *["web.hosts"] * len(texts)]
        return cls(entries=tuple(_entry(text, source) for text, source in zip(texts, named, strict=False)))

    def allows(self, address: WebAddress) -> bool:
        """Return True if an entry of the list matches both host and port of *address*."""
        literal = _literal(address.host)
        return any(
            _has_port(port, address) and (_names(entry, address.host) if literal is None else _holds(entry, literal))
            for entry, port in self.entries
        )

    def allows_connection(self, ip: Address, address: WebAddress) -> bool:
        """Return True if *ip*, to which *address* resolves, is public or in a network of this list with its port."""
        return is_public(ip) or any(_has_port(port, address) and _holds(entry, ip) for entry, port in self.entries)

    def __str__(self) -> str:
        return ", ".join(f"{entry}:{port}" if port else str(entry) for entry, port in self.entries) or "none"


def is_public(ip: Address) -> bool:
    """Return True if *ip* is a public internet address and does not embed a private IPv4 address."""
    if isinstance(ip, ipaddress.IPv6Address):
        nat64_target = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else None
        inner = ip.ipv4_mapped or ip.sixtofour or nat64_target
        if inner is not None:
            return is_public(inner)
    return ip.is_global and not ip.is_multicast


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("the URL has no host name; add it after https://")
    if _literal(host) is not None:
        return host
    name = host.encode("idna").decode().lower()
    if not _NAME.fullmatch(name) or name.startswith("*"):
        raise ValueError(f"{host!r} is not a valid host name; write one such as docs.python.org")
    return name


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _entry(text: str, source: str) -> tuple[str | Network, int | None]:
    entry = text.strip().lower()
    try:
        return ipaddress.ip_network(entry), None
    except ValueError:
        match = _ENTRY.fullmatch(entry)
    if match is not None:
        name, port = match[1].strip("[]"), int(match[2]) if match[2] else None
        try:
            return ipaddress.ip_network(name), port
        except ValueError:
            if name == EVERY_HOST or _NAME.fullmatch(name):
                return name, port
    example = "docs.python.org, *.example.org, localhost:8000 or 10.0.0.0/8"
    raise ConfigInvalid(source, f"web.hosts has {text!r}, which is not a host; write {example}")


def _has_port(port: int | None, address: WebAddress) -> bool:
    return address.port == (PORTS[address.scheme] if port is None else port)


def _names(entry: str | Network, host: str) -> bool:
    is_pattern = isinstance(entry, str) and entry.startswith("*.")
    return entry in (host, EVERY_HOST) or (is_pattern and host.endswith(str(entry)[1:]))


def _holds(entry: str | Network, ip: Address) -> bool:
    return not isinstance(entry, str) and ip in entry


async def resolve_addresses(address: WebAddress, hosts: Sequence[HostList]) -> list[Address]:
    """Resolve the host of *address* and return its IP addresses, at most MAX_ADDRESSES, in the order of DNS.

    Raises `ToolFailed` if the host cannot be resolved, or if one of its IP addresses may not be used. A public address
    may always be used; a private one only if every list in *hosts* contains it. The private ones are not just left out.
    """
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ToolFailed(f"The host {address.host} cannot be resolved: {exc.strerror}. Check its name.") from exc
    ips = list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
    if private := next((ip for ip in ips if not all(each.allows_connection(ip, address) for each in hosts)), None):
        problem = f"{address.host} has the IP address {private}, which is not public"
        raise ToolFailed(f"{problem}. Ask the user to add this IP address, with its port, to the setting web.hosts.")
    return ips[:MAX_ADDRESSES]


def hosts_from_settings(settings: Settings) -> HostList:
    """Parse `web.hosts` of *settings*: the hosts that WebFetch may use. Raises `ConfigInvalid` for an invalid entry."""
    return HostList.parse(settings.web.hosts, settings.item_sources("web.hosts"))
