"""Landlock launcher: a program that drops its rights, then executes another program. Imports no Coterie module.

    python -I -S launch.py [--network] [--hidden PATH | --read PATH | --write PATH]... -- PROGRAM [ARGUMENT]...

Landlock restricts reading and writing files. A seccomp filter restricts sockets, because Landlock covers only some of
them. All capabilities are dropped. If a restriction cannot be applied, the launcher fails and starts nothing.
"""

import ctypes
import os
import struct
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
MACHINES = {"x86_64": (0xC000003E, 41, 53), "aarch64": (0xC00000B7, 198, 199)}
"""Machine type -> its audit constant in the kernel, and the system call numbers of `socket` and `socketpair`."""
FAILED = 125
"""Exit code of the launcher if the sandbox could not be set up, so that no program was started."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock version -> bit mask of all file rights that exist from that version on."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
"""Names of the devices in /dev that a sandboxed program may not only read but also write."""

_NO_NEW_PRIVILEGES, _SECCOMP, _DROP_BOUNDING = 38, 22, 24
_ALLOWED, _DENIED = 0x7FFF0000, 0x00050000 | 13
_FAMILIES = (2, 10, 16)
"""Socket families allowed with network: IPv4, IPv6 and netlink, which programs use to look up addresses and routes."""
_IO_URING = (425, 426, 427)
_DATAGRAM = 2

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Codes of the BPF instructions from which the seccomp filter (the kernel's filter of system calls) is built."""

_libc = ctypes.CDLL(None, use_errno=True)


class ConfinementFailed(Exception):
    """Error: the kernel cannot apply a requested restriction; the launcher then starts no program."""


def main(arguments: "list[str]") -> None:
    """Drop rights as the command line *arguments* say, then become the program after `--`; exit with 125 on failure."""
    end = arguments.index("--")
    program, words = arguments[end + 1 :], arguments[:end]
    has_network = words[:1] == ["--network"]
    words = words[1:] if has_network else words
    views = dict(zip(words[1::2], words[::2], strict=True))
    try:
        _call(_libc.prctl, _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        # Drop all capabilities; only a root user has any.
        _call(_libc.capset, struct.pack("=Ii", 0x20080522, 0), bytes(24))
        _restrict_files(views, has_network=has_network)
        _restrict_sockets(has_network=has_network)
        os.execv(program[0], program)  # noqa: S606 - the purpose of the launcher
    except (OSError, ConfinementFailed) as exc:
        sys.stderr.write(f"cannot set up the sandbox, so the command was not run: {exc}; run `coterie doctor`\n")
        sys.exit(FAILED)


def _restrict_files(views: "dict[str, str]", *, has_network: bool) -> None:
    version = _libc.syscall(CREATE_RULESET, None, 0, ASK_VERSION)
    rights = next((_ALL_OF_VERSION[known] for known in sorted(_ALL_OF_VERSION, reverse=True) if known <= version), 0)
    if not rights & _TRUNCATE:
        raise ConfinementFailed(f"the kernel has Landlock version {max(0, version)}; update it to Linux 6.2 or later")
    networks = 0 if has_network or version < 4 else 3
    scopes = 3 if version >= 6 else 0
    given = struct.pack("=QQQ", rights, networks, scopes)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = _call(_libc.syscall, CREATE_RULESET, given, ctypes.c_size_t(len(given)), 0)
    # File names stay visible everywhere: without listing a directory, visible paths below it could not be found.
    _allow(rules, "/", _READ_DIR)
    for path in _shown(views):
        _allow(rules, path, _READING)
    for path, view in views.items():
        if view == "--write":
            _allow(rules, path, rights)
        elif view == "--read":
            _allow(rules, path, _READING)
    for name in _DEVICES:
        _allow(rules, f"/dev/{name}", _READ_FILE | _WRITE_FILE | _READ_DIR | rights & (_TRUNCATE | _IOCTL))
    _call(_libc.syscall, RESTRICT_SELF, rules, 0)
    os.close(rules)


def _shown(views: "dict[str, str]") -> "list[str]":
    """Return paths that together contain everything but the hidden *views*, because Landlock has only allow rules."""
    hidden = [path for path, view in views.items() if view == "--hidden"]
    shown, around = [], ["/"]
    while around:
        path = around.pop()
        if not any(place == path or place.startswith(path.rstrip("/") + "/") for place in hidden):
            shown.append(path)
        elif path not in hidden:
            try:
                with os.scandir(path) as entries:
                    around += [entry.path for entry in entries if not entry.is_symlink()]
            except OSError:  # a directory that cannot be listed cannot be allowed in parts
                continue
    return shown


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it does not exist any longer, or belongs to another user
        return
    try:
        is_directory = os.fstat(place).st_mode & 0o170000 == 0o040000
        kept = rights if is_directory else rights & _OF_FILES
        if kept:
            _call(_libc.syscall, ADD_RULE, rules, 1, struct.pack("=Qi", kept, place), 0)
    finally:
        os.close(place)


def _restrict_sockets(*, has_network: bool) -> None:
    """Install a seccomp filter that denies sockets, except socket pairs and, with *has_network*, IP and netlink.

    Unix sockets are denied, because seccomp cannot see the path that they connect to, and so are datagram pairs, which
    can send to any path. io_uring is denied, because seccomp does not see its operations.
    """
    machine, socket, socketpair = MACHINES[os.uname().machine]
    families = _FAMILIES if has_network else ()
    code = [
        (_LOAD, 4, "", ""),
        (_EQUAL, machine, "", "deny"),
        (_LOAD, 0, "", ""),
        (_AT_LEAST, 0x40000000, "deny", ""),  # the x32 ABI has the same calls under other numbers
        *((_EQUAL, number, "deny", "") for number in _IO_URING),
        (_EQUAL, socketpair, "pair", ""),
        (_EQUAL, socket, "", "allow"),
        (_LOAD, 16, "", ""),
        *((_EQUAL, family, "allow", "") for family in families),
        (_EQUAL, 0, "deny", "deny"),
    ]
    code += [(_LOAD, 24, "", ""), (_AND, 0xF, "", ""), (_EQUAL, _DATAGRAM, "deny", "allow")]
    code += [(_RETURN, _DENIED, "", ""), (_RETURN, _ALLOWED, "", "")]
    size = len(code)
    places = {"pair": size - 5, "deny": size - 2, "allow": size - 1}
    lines = b"".join(
        struct.pack("=HBBI", operation, *(places[name] - at - 1 if name else 0 for name in (then, other)), value)
        for at, (operation, value, then, other) in enumerate(code)
    )
    buffer = ctypes.create_string_buffer(lines, len(lines))
    _call(_libc.prctl, _SECCOMP, 2, struct.pack("@HP", size, ctypes.addressof(buffer)), 0, 0)


def _call(function: "ctypes._FuncPointer", *arguments: object) -> int:
    result: int = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
