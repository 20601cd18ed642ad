"""Configuration of an MCP server, from `.mcp.json` files and definitions."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import attrs
import msgspec

from coterie.agents.mcp.tool_names import plain_name
from coterie.errors import ConfigInvalid
from coterie.suggestions import closest_match

Transport = Literal["stdio", "http"]

STDIO_KEYS = ("command", "args", "env", "cwd")
HTTP_KEYS = ("url", "headers")
SHARED_KEYS = ("type", "shared", "disabled")
KINDS: Mapping[str, Transport] = {"stdio": "stdio", "http": "http", "streamable-http": "http"}
"""What people write for `type`."""
LONGEST_NAME = 64
"""Characters: the names of its tools must have room behind it."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

ReportProblem = Callable[[str, str | None], None]
"""Told what is wrong, and with which key of the server if it is about one."""


@attrs.frozen(kw_only=True)
class ServerConfig:
    """One server, as it is written: variables are not filled in yet, so it holds no secret that they stand for."""

    name: str
    """Plain, see `plain_name`."""
    transport: Transport
    command: tuple[str, ...] = ()
    """The program of a stdio server, and its arguments."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    is_shared: bool = True
    """Whether one connection serves all agents of a session."""

    @property
    def content(self) -> bytes:
        """All of it, as bytes that the user approves: whatever changes, changes them."""
        return msgspec.json.encode(attrs.asdict(self), order="sorted")

    @property
    def where(self) -> str:
        """What it runs, or where it is, in one line and without the values of variables."""
        return " ".join(self.command) if self.transport == "stdio" else self.url

    @property
    def variables(self) -> frozenset[str]:
        """The names of all variables that it is written with."""
        texts = (*self.command, *self.env.values(), self.cwd or "", self.url, *self.headers.values())
        return frozenset(name for text in texts for name, _ in _VARIABLE.findall(text))

    def with_variables(self, environ: Mapping[str, str]) -> "ServerConfig":
        """With `${VAR}` and `${VAR:-default}` replaced. Raises `ConfigInvalid` for a variable that is not set."""

        def fill(text: str) -> str:
            return _VARIABLE.sub(lambda match: _value(match, self.name, environ), text)

        return attrs.evolve(
            self,
            command=tuple(map(fill, self.command)),
            env={name: fill(value) for name, value in self.env.items()},
            cwd=None if self.cwd is None else fill(self.cwd),
            url=fill(self.url),
            headers={name: fill(value) for name, value in self.headers.items()},
        )


def parse_server(name: str, value: object, tell: ReportProblem) -> ServerConfig | None:
    """The server that *value* configures; None, and *tell* is told why, for one that cannot be or is disabled.

    A key that is not known is told too, and passed over. Booleans may be words, as front matter has them.
    """
    plain = plain_name(name)
    if not plain or len(plain) > LONGEST_NAME:
        tell(f"the name of a server has 1 to {LONGEST_NAME} letters, digits, - or _, and {name!r} does not", None)
        return None
    if not isinstance(value, dict):
        tell(f"{name} must be an object with a command, or with a url", None)
        return None
    fields = cast("dict[str, Any]", value)
    transport = _transport(name, fields, tell)
    if transport is None or _flag(fields, "disabled", tell, default=False):
        return None
    _report_unknown(name, fields, transport, tell)
    shared = _flag(fields, "shared", tell, default=True)
    read = _parse_stdio if transport == "stdio" else _parse_http
    config = read(plain, fields, tell)
    return None if config is None else attrs.evolve(config, is_shared=shared)


def _transport(name: str, fields: Mapping[str, Any], tell: ReportProblem) -> Transport | None:
    kind = fields.get("type", "http" if "url" in fields and "command" not in fields else "stdio")
    if kind == "sse":
        tell(f"{name} is of the type sse, which is no longer spoken; use its address for streamable HTTP: http", "type")
        return None
    if kind not in KINDS:
        tell(f"{name} is of the type {kind!r}; it can be stdio or http", "type")
        return None
    return KINDS[kind]


def _report_unknown(name: str, fields: Mapping[str, Any], transport: Transport, tell: ReportProblem) -> None:
    known = (*(STDIO_KEYS if transport == "stdio" else HTTP_KEYS), *SHARED_KEYS)
    for key in fields:
        if key not in known:
            near = closest_match(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"a {transport} server has {', '.join(known)}"
            tell(f"{name} has a key {key!r} that is not known and is ignored; {hint}", key)


def _parse_stdio(name: str, fields: Mapping[str, Any], tell: ReportProblem) -> ServerConfig | None:
    command, args, cwd = fields.get("command"), fields.get("args", []), fields.get("cwd")
    env = _texts(name, fields, "env", tell)
    if not isinstance(command, str) or not command.strip():
        tell(f"{name} has no command: say which program is the server", "command")
    elif not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        tell(f"the args of {name} must be a list of strings", "args")
    elif cwd is not None and not isinstance(cwd, str):
        tell(f"the cwd of {name} must be a path", "cwd")
    elif env is not None:
        return ServerConfig(name=name, transport="stdio", command=(command, *args), env=env, cwd=cwd)
    return None


def _parse_http(name: str, fields: Mapping[str, Any], tell: ReportProblem) -> ServerConfig | None:
    url, headers = fields.get("url"), _texts(name, fields, "headers", tell)
    if not isinstance(url, str) or not url.startswith(("http://", "https://", "${")):
        tell(f"{name} has no url that begins with http:// or https://", "url")
        return None
    return None if headers is None else ServerConfig(name=name, transport="http", url=url, headers=headers)


def _texts(name: str, fields: Mapping[str, Any], key: str, tell: ReportProblem) -> dict[str, str] | None:
    """The strings by name that *key* holds; None if it holds something else."""
    given = fields.get(key, {})
    if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
        return cast("dict[str, str]", given)
    tell(f"the {key} of {name} must be strings by name", key)
    return None


def _flag(fields: Mapping[str, Any], key: str, tell: ReportProblem, *, default: bool) -> bool:
    value = fields.get(key, default)
    if value in (True, "true"):
        return True
    if value not in (False, "false"):
        tell(f"{key} is {value!r} and is ignored; it can be true or false", key)
        return default
    return False


def _value(match: re.Match[str], server: str, environ: Mapping[str, str]) -> str:
    name, default = match.groups()
    if name in environ:
        return environ[name]
    if default is None:
        raise ConfigInvalid(server, f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return cast("str", default)
