"""Parser of shell command lines, whose commands permission rules are compared with.

A permission must cover every command of a line. So the parser handles the simple part of the language exactly: lists,
pipelines, subshells, groups, quotes, redirections, substitutions. Everything else is parsed as far as possible and
marked as unclear.
"""

import re

import attrs

from coterie.agents.permissions.commands.shell_word import ShellWord, WordReader

NULL = "/dev/null"

_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_NETWORK = re.compile(r"/dev/(tcp|udp)/")
_NAME = re.compile(r"[^\s;&|<>()'\"\\$`{}=,]+")

MAX_CHARACTERS = 50_000
"""Maximum length of a command line that is parsed, in characters; a longer one is only marked as unclear."""
MAX_NESTING = 20
"""Maximum nesting depth of substitutions, such as `$(...)`; a deeper line is marked as unclear."""

_BLANK = re.compile(r"(?:[ \t]|\\\n)*")
_COMMENT = re.compile(r"#[^\n]*")
_CONTROL = re.compile(r";;&|;;|;&|;|&&|&(?!>)|\|\||\|&|\||\n|[()]")
_REDIRECTION = re.compile(r"&>>?|[0-9]{0,9}(<<<|<<-|<<|<>|<&|>>|>&|>\||[<>](?!\())")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=", re.DOTALL)
_VARIABLE_REDIRECTION = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_GROUPING = frozenset({"{", "}", "!"})
_KEYWORDS = frozenset(
    "if then elif else fi for while until do done case esac select function time coproc [[ ]]".split()  # noqa: SIM905 - a list of words is most readable as one string
)


@attrs.frozen
class Redirection:
    """Redirection of the input or output of a command."""

    operator: str
    target: ShellWord

    @property
    def is_harmless(self) -> bool:
        """True if the redirection writes nothing and opens no connection.

        Such redirections are input from files, discarded output, and duplicated descriptors.
        """
        if self.operator in ("<<", "<<-", "<<<"):
            return True
        if not self.target.is_literal:
            return False
        if self.operator in (">&", "<&"):
            return _DESCRIPTOR.fullmatch(self.target.text) is not None
        if self.operator == "<":
            # The shell opens network connections for these file names.
            return _NETWORK.match(self.target.text) is None
        return self.operator != "<>" and self.target.text == NULL


@attrs.frozen(kw_only=True)
class SimpleCommand:
    """One command of a command line, with its variable assignments and redirections."""

    words: tuple[ShellWord, ...]
    """Name and arguments of the command; empty if there are only assignments or redirections."""
    assignments: tuple[ShellWord, ...] = ()
    redirections: tuple[Redirection, ...] = ()

    @property
    def name(self) -> str:
        """Name of the program, without its directory; empty if unknown."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].is_literal else ""

    @property
    def is_plain(self) -> bool:
        """True if the words alone decide the effect: the command sets no variable and all redirections are harmless."""
        return not self.assignments and all(redirection.is_harmless for redirection in self.redirections)


@attrs.frozen(kw_only=True)
class CommandLine:
    """Parsed command line: all commands that a shell would run."""

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    substituted: tuple[SimpleCommand, ...] = ()
    """Commands inside substitutions such as `$(...)`; their output becomes part of another command."""
    unclear: str | None = None
    """First construct that the parser does not understand, as a phrase; None if `commands` is certainly complete."""

    def mentions(self, name: str) -> bool:
        """True if *name* occurs anywhere in the line as a word, quoted or not, with or without a directory."""
        words = (word.text for command in (*self.commands, *self.substituted) for word in command.words)
        found = (match[0] for text in (self.text, *words) for match in _NAME.finditer(text))
        return any(word == name or word.rpartition("/")[2] == name for word in found)


def parse_command(text: str) -> CommandLine:
    """Return the commands in *text*, a command line for `bash -c`, without running them. Never raises."""
    return _parse(text, depth=0)


def _parse(text: str, depth: int) -> CommandLine:
    reader = _CommandParser(text=text, depth=depth)
    if len(text) > MAX_CHARACTERS:
        return CommandLine(text=text, unclear=f"over {MAX_CHARACTERS:,} characters")
    if unprintable := next((letter for letter in text if not letter.isprintable() and letter not in "\t\n"), None):
        reader.mark_unknown(f"the character U+{ord(unprintable):04X}")
    commands = reader.read_list()
    return CommandLine(
        text=text, commands=tuple(commands), substituted=tuple(reader.substituted), unclear=reader.unclear
    )


@attrs.define(eq=False)
class _Draft:
    """Simple command while it is being parsed."""

    words: list[ShellWord] = attrs.field(factory=list)
    assignments: list[ShellWord] = attrs.field(factory=list)
    redirections: list[Redirection] = attrs.field(factory=list)

    @property
    def is_begun(self) -> bool:
        return bool(self.words or self.assignments or self.redirections)

    def finish(self) -> list[SimpleCommand]:
        """Return the parsed command in a list, empty if there is none, and reset the draft for the next command."""
        if not self.is_begun:
            return []
        command = SimpleCommand(
            words=tuple(self.words), assignments=tuple(self.assignments), redirections=tuple(self.redirections)
        )
        self.words, self.assignments, self.redirections = [], [], []
        return [command]


@attrs.define(eq=False)
class _CommandParser(WordReader):
    """Parser of lists of commands; its base class parses the words."""

    depth: int = attrs.field(kw_only=True)
    substituted: list[SimpleCommand] = attrs.field(factory=list)
    _pending: list[Redirection] = attrs.field(factory=list)
    """Here-documents whose operator has been parsed, and whose text begins on the next line."""

    def read_list(self, *, is_closed: bool = False) -> list[SimpleCommand]:
        """Return the commands up to the end of the text; with *is_closed*, up to and including the closing `)`."""
        found: list[SimpleCommand] = []
        draft = _Draft()
        open_brackets = 0
        while self._find_token():
            if operator := _CONTROL.match(self.text, self.at):
                open_brackets += self._control(operator[0], draft)
                found += draft.finish()
                if open_brackets < 0 and is_closed:
                    return found
                if open_brackets < 0:
                    self.mark_unknown("a ) without its (")
                    open_brackets = 0
            elif redirection := _REDIRECTION.match(self.text, self.at):
                self.at = redirection.end()
                draft.redirections.append(self._redirection(redirection[1] or redirection[0]))
            else:
                self._add_word(draft)
        if is_closed or open_brackets:
            self.mark_unknown("a ( without its )")
        if self._pending:
            self.mark_unknown("a here-document without its text")
        return found + draft.finish()

    def substitute(self, script: str | None) -> None:
        """Add the commands of a substitution, *script* or if None the text from here to `)`, to `substituted`."""
        if self.depth >= MAX_NESTING:
            self.mark_unknown(f"over {MAX_NESTING} substitutions in one another")
            self.at = len(self.text)
        elif script is not None:
            line = _parse(script, self.depth + 1)
            self.substituted += (*line.commands, *line.substituted)
            self.unclear = self.unclear or line.unclear
        else:
            self.depth += 1
            outside, self._pending = self._pending, []
            self.substituted += self.read_list(is_closed=True)
            # Versions of bash differ on here-documents that cross the border of a substitution.
            if outside or self._pending:
                self.mark_unknown("a here-document around a substitution")
            self._pending = []
            self.depth -= 1

    def _find_token(self) -> bool:
        """Skip blanks and comments; return False at the end of the text."""
        for skipped in (_BLANK, _COMMENT):
            if match := skipped.match(self.text, self.at):
                self.at = match.end()
        return self.at < len(self.text)

    def _control(self, operator: str, draft: _Draft) -> int:
        """Consume *operator*, which follows the command *draft*; return the change of the bracket depth: 1, 0, -1."""
        self.at += len(operator)
        if operator == "\n":
            self._pass_documents()
        elif operator == "(":
            if draft.is_begun or self.text.startswith("(", self.at):
                self.mark_unknown("a ( that opens no subshell")
            return 1
        elif operator == ")":
            return -1
        elif len(operator) > 1 and operator[0] == ";":
            self.mark_unknown(f"a {operator}")
        return 0

    def _redirection(self, operator: str) -> Redirection:
        blank = _BLANK.match(self.text, self.at)
        assert blank is not None
        self.at = blank.end()
        if operator in (">&", "<&") and self.text.startswith("-", self.at):
            # "-" closes the descriptor, and is a separate word even if letters follow.
            self.at += 1
            return Redirection(operator, ShellWord("-", ("-",)))
        redirection = Redirection(operator, self.next_word())
        if not redirection.target.raw:
            self.mark_unknown(f"a {operator} without a target")
        if operator in ("<<", "<<-"):
            self._pending.append(redirection)
        return redirection

    def _pass_documents(self) -> None:
        """Skip the texts of the here-documents that the previous line has started."""
        pending, self._pending = self._pending, []
        for document in pending:
            delimiter = document.target
            if not delimiter.is_literal or "$" in delimiter.raw:
                self.mark_unknown("a here-document with an unusual delimiter")
            is_quoted = delimiter.raw != delimiter.text
            self._pass_document(delimiter.text, has_tabs=document.operator == "<<-", is_quoted=is_quoted)

    def _pass_document(self, delimiter: str, *, has_tabs: bool, is_quoted: bool) -> None:
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            line = line.lstrip("\t") if has_tabs else line
            if line == delimiter:
                return
            # A backslash may join this line to the next one, which could form the delimiter.
            if not is_quoted and any(letter in line for letter in "\\$`"):
                self.mark_unknown("a here-document with expansions")
            if delimiter and line.startswith(delimiter):
                self.mark_unknown("a here-document with an uncertain end")
        self.mark_unknown("a here-document that does not end")

    def _add_word(self, draft: _Draft) -> None:
        word = self.next_word()
        if _VARIABLE_REDIRECTION.fullmatch(word.raw) and self.text.startswith(("<", ">"), self.at):
            self.mark_unknown("a redirection that sets a variable")
        if not draft.words and _ASSIGNMENT.match(word.raw):
            draft.assignments.append(word)
        elif draft.is_begun or word.raw not in _KEYWORDS | _GROUPING:
            if not draft.words and word.is_unknown:
                self.mark_unknown("a command whose name is computed")
            draft.words.append(word)
        elif word.raw in _KEYWORDS:
            self.mark_unknown(f"the keyword {word.raw}")
