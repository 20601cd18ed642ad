"""Words of a shell command line, as far as they are known before the shell expands them."""

import fnmatch
import glob
import re
from collections.abc import Mapping

import attrs

METACHARACTERS = frozenset(" \t\n;&|<>()")
"""Characters that end an unquoted word."""

_PLAIN = re.compile(r"[^\s;&|<>()'\"\\$`*?\[{~]+")
_PROCESS = re.compile(r"[<>]\(")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]|\{(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])\})")
# Other brackets and tildes are literal: `{}` of find, `[` the command, HEAD~1.
_UNEXPANDED = re.compile(r"(?<![^\s;&|<>()])\{\}(?=[\s;&|<>()]|\Z)|\[(?=[\s;&|<>()]|\Z)|(?<=[^\s;&|<>()=:])~")
_EXPANDED = re.compile(r"[*?~]|\[[^\s;&|<>()'\"\\$`\]]{0,100}\]?|\{[^\s;&|<>()'\"\\$`}]{0,100}\}?")
_BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ANSI_ESCAPE = re.compile(
    r"""\\(?:([abeEfnrtv\\'"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8}))"""
)
_ANSI_LETTERS: Mapping[str, str] = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))

Pieces = list[str | None]


@attrs.frozen
class ShellWord:
    """One word of a command line: its literal pieces, and None for each expansion by the shell, such as `$HOME`."""

    raw: str
    """Source text of the word, with its quotes, but without escaped line breaks."""
    pieces: tuple[str | None, ...]

    @property
    def text(self) -> str:
        """Known part of the word, without quotes and expansions; the whole word if it is literal."""
        return "".join(piece or "" for piece in self.pieces)

    @property
    def is_literal(self) -> bool:
        """True if the shell expands nothing in the word, so that the command gets exactly `text`."""
        return None not in self.pieces

    @property
    def is_unknown(self) -> bool:
        """True if nothing of the word is known: it may become any text, or be removed."""
        return not self.is_literal and not self.text

    def may_be(self, text: str) -> bool:
        """True if the word may become *text* when the shell expands it."""
        if self.is_literal:
            return self.text == text
        pattern = "".join("*" if piece is None else glob.escape(piece) for piece in self.pieces)
        return fnmatch.fnmatchcase(text, pattern)


@attrs.define(eq=False)
class WordReader:
    """Parser of the words in *text*, from the position *at*.

    The parser continues after a construct that it does not understand, so that the rest is still seen, but keeps the
    first reason in `unclear`. From then on its words may differ from those of the shell.
    """

    text: str
    at: int = 0
    unclear: str | None = None

    def mark_unknown(self, reason: str) -> None:
        """Record that the shell may parse *text* differently, because it contains *reason*."""
        self.unclear = self.unclear or reason

    def next_word(self) -> ShellWord:
        """Return the word that begins at the current position; an empty word if none begins there."""
        start = self.at
        pieces: Pieces = []
        while self.at < len(self.text):
            if self.text[self.at] in METACHARACTERS and not _PROCESS.match(self.text, self.at):
                break
            if plain := _PLAIN.match(self.text, self.at):
                pieces.append(plain[0])
                self.at = plain.end()
            else:
                self._special(pieces)
        return ShellWord(raw=self.text[start : self.at].replace("\\\n", ""), pieces=tuple(pieces))

    def substitute(self, script: str | None) -> None:
        """Parse the commands of a substitution: *script*, or, if None, the text from here to the closing `)`."""
        raise NotImplementedError

    def _special(self, pieces: Pieces) -> None:
        match self.text[self.at]:
            case "\\":
                self._escaped(pieces)
            case "'":
                self._single_quoted(pieces)
            case '"':
                self._double_quoted(pieces)
            case "$":
                self._dollar(pieces)
            case "`":
                self._backquoted(pieces)
            case "<" | ">":
                self._substitution(pieces)
            case "*" | "?" | "[" | "{" | "~":
                self._expansion(pieces)
            case other:  # White space that does not separate words in the shell.
                pieces.append(other)
                self.at += 1

    def _escaped(self, pieces: Pieces) -> None:
        letter = self.text[self.at + 1 : self.at + 2]
        if not letter:
            self.mark_unknown("a backslash at its end")
        elif letter != "\n":
            pieces.append(letter)
        self.at += 2

    def _single_quoted(self, pieces: Pieces) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.mark_unknown("a quote that is not closed")
            end = len(self.text)
        pieces.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _double_quoted(self, pieces: Pieces) -> None:
        self.at += 1
        pieces.append("")
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self.at += 1
                return
            if letter == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                if escaped != "\n":
                    pieces.append(escaped if escaped in ("$", "`", '"', "\\") else f"\\{escaped}")
                self.at += 2
            elif letter == "$":
                self._dollar(pieces, is_quoted=True)
            elif letter == "`":
                self._backquoted(pieces)
            else:
                pieces.append(letter)
                self.at += 1
        self.mark_unknown("a quote that is not closed")

    def _ansi_quoted(self, pieces: Pieces) -> None:
        """Parse `$'...'` from after its opening quote to its end, and append its characters to *pieces*."""
        pieces.append("")
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "'":
                self.at += 1
                return
            if letter == "\\":
                self._ansi_escape(pieces)
            else:
                pieces.append(letter)
                self.at += 1
        self.mark_unknown("a quote that is not closed")

    def _ansi_escape(self, pieces: Pieces) -> None:
        escape = _ANSI_ESCAPE.match(self.text, self.at)
        if escape is None:
            self.mark_unknown(f"the escape {self.text[self.at : self.at + 2]!r}")
            self.at += 1
            return
        self.at = escape.end()
        letter, octal, *hexadecimal = escape.groups()
        if letter:
            pieces.append(_ANSI_LETTERS[letter])
            return
        code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
        # NUL ends the string, and characters beyond ASCII depend on the locale.
        if 0 < code < 0x80:
            pieces.append(chr(code))
        else:
            self.mark_unknown(f"the escape {escape[0]!r}")

    def _dollar(self, pieces: Pieces, *, is_quoted: bool = False) -> None:
        if variable := _VARIABLE.match(self.text, self.at):
            pieces.append(None)
            self.at = variable.end()
            return
        opening = self.text[self.at + 1 : self.at + 2]
        if opening == "(":
            if self.text.startswith("((", self.at + 1):
                self.mark_unknown("arithmetic")
            self._substitution(pieces)
        elif opening and opening in "{[":
            self.mark_unknown(f"an expansion ${opening}")
            pieces.append(None)
            self.at += 2
        elif opening == "'" and not is_quoted:
            self.at += 2
            self._ansi_quoted(pieces)
        elif opening == '"' and not is_quoted:
            self.mark_unknown('a translated string $"')
            self.at += 1
        else:
            if self.text.startswith("\\\n", self.at + 1):
                self.mark_unknown("a $ at the end of a line")
            pieces.append("$")
            self.at += 1

    def _substitution(self, pieces: Pieces) -> None:
        """Parse a substitution that begins here, such as `$(`, to its end; append None (unknown text) to *pieces*."""
        self.at += 2
        self.substitute(None)
        pieces.append(None)

    def _backquoted(self, pieces: Pieces) -> None:
        quoted = _BACKQUOTED.match(self.text, self.at)
        if quoted is None:
            self.mark_unknown("a backquote that is not closed")
            self.at += 1
            return
        self.at = quoted.end()
        self.substitute(re.sub(r"\\([$`\\])", r"\1", quoted[1]))
        pieces.append(None)

    def _expansion(self, pieces: Pieces) -> None:
        """Parse `*`, `?`, `[`, `{` or `~` here; append None (expansion) to *pieces*, or the text if it is literal."""
        if literal := _UNEXPANDED.match(self.text, self.at):
            pieces.append(literal[0])
            self.at = literal.end()
            return
        expanded = _EXPANDED.match(self.text, self.at)
        assert expanded is not None
        pieces.append(None)
        self.at = expanded.end()
