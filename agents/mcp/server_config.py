"""Configuration of an MCP server, parsed from `mcp.json` files and agent definitions."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

import attrs
import msgspec

from coterie.agents.mcp.tool_names import plain_name
from coterie.errors import ConfigInvalid
from coterie.suggestions import closest_match

Transport = Literal["stdio", "http"]

KEYS: Mapping[Transport, tuple[str, ...]] = {"stdio": ("command", "args", "env", "cwd"), "http": ("url", "headers")}
KINDS: Mapping[str, Transport] = {"stdio": "stdio", "http": "http", "streamable-http": "http"}
"""Accepted values of the key `type` of a server, each with the transport that it means."""
LONGEST_NAME = 64
"""Maximum length of a server name, in characters, so that a tool name, which contains it, is not too long."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

ReportProblem = Callable[[str, str | None], None]
"""Function to call with the text of a problem, and the key of the server's table with the invalid value, or None."""


@attrs.frozen(kw_only=True)
class ServerConfig:
    """Configuration of one MCP server. Only a copy made by `with_variables` has values in place of `${VAR}`."""

    name: str
    """Name of the server in the form that tool names use: `_` for other characters than letters, digits and `-`."""
    transport: Transport
    command: tuple[str, ...] = ()
    """Program of a stdio server, followed by its arguments; empty for an HTTP server."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    is_shared: bool = True
    """True if all agents of a session use the same connection to the server; False if each agent gets its own."""

    @property
    def content(self) -> bytes:
        """The configuration as JSON; the user's approval of the server is valid only for exactly these bytes."""
        return msgspec.json.encode(attrs.asdict(self), order="sorted")

    @property
    def where(self) -> str:
        """Command or URL of the server in one line, to show to the user, with variables not replaced."""
        return " ".join(self.command) if self.transport == "stdio" else self.url

    @property
    def variables(self) -> frozenset[str]:
        """Names of all environment variables that the configuration refers to."""
        texts = (*self.command, *self.env.values(), self.cwd or "", self.url, *self.headers.values())
        return frozenset(name for text in texts for name, _ in _VARIABLE.findall(text))

    def with_variables(self, environ: Mapping[str, str]) -> "ServerConfig":
        """Return a copy with the values of `${VAR}` and `${VAR:-default}`. Raises `ConfigInvalid` without a value."""

        def value(match: re.Match[str]) -> str:
            name, default = match.groups()
            if name not in environ and default is None:
                hint = f"set it, or write ${{{name}:-default}} in the configuration of this MCP server"
                raise ConfigInvalid(self.name, f"the environment variable {name} is not set; {hint}")
            return str(environ.get(name, default))

        fill = partial(_VARIABLE.sub, value)

        return attrs.evolve(
            self,
            command=tuple(map(fill, self.command)),
            env={name: fill(value) for name, value in self.env.items()},
            cwd=None if self.cwd is None else fill(self.cwd),
            url=fill(self.url),
            headers={name: fill(value) for name, value in self.headers.items()},
        )


def parse_server(name: str, value: object, report: ReportProblem) -> ServerConfig | None:
    """Parse *value*, the configuration of the MCP server *name*; None if it is disabled or invalid.

    Problems are passed to *report*. Unknown keys are ignored. Booleans may be the strings "true" and "false".
    """
    plain = plain_name(name)
    if not plain or len(plain) > LONGEST_NAME:
        report(f"invalid server name {name!r}; use 1 to {LONGEST_NAME} letters, digits, - or _", None)
        return None
    if not isinstance(value, dict):
        report(f"{name} must be an object with a command, or with a url", None)
        return None
    fields = cast("dict[str, Any]", value)
    transport = _transport(name, fields, report)
    if transport is None or _flag(fields, "disabled", report, default=False):
        return None
    known = (*KEYS[transport], "type", "shared", "disabled")
    for key in fields:
        if key not in known:
            near = closest_match(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"a {transport} server has {', '.join(known)}"
            report(f"{name} has a key {key!r} that is not known and is ignored; {hint}", key)
    shared = _flag(fields, "shared", report, default=True)
    read = _parse_stdio if transport == "stdio" else _parse_http
    config = read(plain, fields, report)
    return None if config is None else attrs.evolve(config, is_shared=shared)


def _transport(name: str, fields: Mapping[str, Any], report: ReportProblem) -> Transport | None:
    type_ = fields.get("type", "http" if "url" in fields and "command" not in fields else "stdio")
    if type_ == "sse":
        report(f"{name} is of the type sse, which is not supported; use the URL for streamable HTTP: http", "type")
        return None
    if type_ not in KINDS:
        report(f"{name} is of the unknown type {type_!r}; it can be stdio or http", "type")
        return None
    return KINDS[type_]


def _parse_stdio(name: str, fields: Mapping[str, Any], report: ReportProblem) -> ServerConfig | None:
    command, args, cwd = fields.get("command"), fields.get("args", []), fields.get("cwd")
    env = _texts(name, fields, "env", report)
    if not isinstance(command, str) or not command.strip():
        report(f"{name} has no command: name the program of the server", "command")
    elif not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        report(f"the args of {name} must be a list of strings", "args")
    elif cwd is not None and not isinstance(cwd, str):
        report(f"the cwd of {name} must be a path", "cwd")
    elif env is not None:
        return ServerConfig(name=name, transport="stdio", command=(command, *args), env=env, cwd=cwd)
    return None


def _parse_http(name: str, fields: Mapping[str, Any], report: ReportProblem) -> ServerConfig | None:
    url, headers = fields.get("url"), _texts(name, fields, "headers", report)
    if not isinstance(url, str) or not url.startswith(("http://", "https://", "${")):
        report(f"{name} has no url that starts with http:// or https://", "url")
        return None
    return None if headers is None else ServerConfig(name=name, transport="http", url=url, headers=headers)


def _texts(name: str, fields: Mapping[str, Any], key: str, report: ReportProblem) -> dict[str, str] | None:
    """Return the mapping of strings in the key *key*; None, after a call of *report*, if it is not such a mapping."""
    given = fields.get(key, {})
    if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
        return cast("dict[str, str]", given)
    report(f"the {key} of {name} must be a mapping of strings", key)
    return None


def _flag(fields: Mapping[str, Any], key: str, report: ReportProblem, *, default: bool) -> bool:
    value = fields.get(key, default)
    if value in (True, "true"):
        return True
    if value not in (False, "false"):
        report(f"{key} is {value!r} and is ignored; it can be true or false", key)
        return default
    return False
