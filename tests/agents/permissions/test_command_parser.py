"""The parser returns the commands that bash would run, or marks the line as unclear."""

import re
import shlex
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.agents.permissions.commands.command_parser import MAX_CHARACTERS, SimpleCommand, parse_command
from coterie.agents.permissions.commands.command_pattern import CommandPattern
from tests.agents.permissions.real_bash import ran_by_bash
from tests.examples import examples

LITERAL: dict[str, list[list[str]]] = {
    "aa": [["aa"]],
    "aa bb": [["aa", "bb"]],
    "aa\tbb": [["aa", "bb"]],
    "a\\a 'b b' \"c c\"": [["aa", "b b", "c c"]],
    "'a'\"a\" ''": [["aa", ""]],
    'aa "it\'s" \'a"b\' "\\$x \\` \\\\ \\" \\n"': [["aa", "it's", 'a"b', '$x ` \\ " \\n']],
    "aa $'b\\tc\\x41\\101\\u0041\\'' $": [["aa", "b\tcAAA'", "$"]],
    'aa "$" "a$\'b\'"': [["aa", "$", "a$'b'"]],
    "a\\\na b\\\n\\\nb": [["aa", "bb"]],
    'aa "b\\\nb"': [["aa", "bb"]],
    "aa 'b\\\nb'": [["aa", "b\\\nb"]],
    "aa; bb": [["aa"], ["bb"]],
    "aa;bb\ncc": [["aa"], ["bb"], ["cc"]],
    "aa&&bb": [["aa"], ["bb"]],
    "! aa || bb": [["aa"], ["bb"]],
    "aa|bb|&cc": [["aa"], ["bb"], ["cc"]],
    "(aa; bb) ; { cc; }": [["aa"], ["bb"], ["cc"]],
    "( (aa) )": [["aa"]],
    "aa # bb; cc": [["aa"]],
    "aa #'\nbb": [["aa"], ["bb"]],
    "# aa \\\nbb": [["bb"]],
    "aa b#c '#' \\# #": [["aa", "b#c", "#", "#"]],
    "aa;#\nbb": [["aa"], ["bb"]],
    "aa 2>&1 >&2 bb": [["aa", "bb"]],
    "aa >/dev/null bb 2> /dev/null": [["aa", "bb"]],
    "2>/dev/null aa": [["aa"]],
    "aa >&-bb": [["aa", "bb"]],
    "aa 2>& -bb": [["aa", "bb"]],
    "aa b2>/dev/null": [["aa", "b2"]],
    "aa &>/dev/null": [["aa"]],
    "aa <<< 'bb cc' dd": [["aa", "dd"]],
    "aa <<EOF\nbb; cc\nEOF\ndd": [["aa"], ["dd"]],
    "aa <<'E F' | bb\n$(cc)\nE F\ndd": [["aa"], ["bb"], ["dd"]],
    "aa <<-EOF\n\tbb\n\tEOF\ncc": [["aa"], ["cc"]],
    "aa <<X <<Y bb\ncc\nX\ndd\nY\nee": [["aa", "bb"], ["ee"]],
    "aa <<EOF 'b\nEOF\n'\ncc\nEOF\ndd": [["aa", "b\nEOF\n"], ["dd"]],
    "aa if then } ! [": [["aa", "if", "then", "}", "!", "["]],
    "'if' aa": [["if", "aa"]],
    "aa HEAD~1 a=b {} x:y ! %1 ^2 @": [["aa", "HEAD~1", "a=b", "{}", "x:y", "!", "%1", "^2", "@"]],
    "aa -- -x --y=z": [["aa", "--", "-x", "--y=z"]],
    "aa héé": [["aa", "héé"]],
}
"""Command lines without expansions."""

UNCLEAR = [
    *("aa 'bb", 'aa "bb', "aa `bb", "aa $(bb", "aa \\", "aa $'bb", "aa ) bb", "(aa", "aa (bb)", "aa() { bb; }"),
    *("if aa; then bb; fi", "for x in aa; do bb; done", "while aa; do bb; done", "case x in x) aa;; esac"),
    *("function aa { bb; }", "time aa", "coproc aa", "[[ aa < bb ]]", "((x = 1))", "select x in a; do aa; done"),
    *("aa $((1 + 2))", "aa $[1 + 2]", "aa ${x:-bb}", 'aa "${x:-$(bb)}"', "aa ${x@P}", "aa ${!x}", "aa ${#x}"),
    *('aa $"bb"', "aa $'\\c['", "aa $'\\0b'", "aa $'\\xff'", "$x aa", '"$x" aa', "$(aa) bb", "`aa` bb", "* aa"),
    *("aa\rbb", "aa\0bb", "aa\x1bbb", "aa\xa0bb", "aa\u2003bb", "aa\u200bbb", "aa\u2028bb", "aa\ufeff", "aa \ud800"),
    *("aa <<EOF\nbb", "aa <<EOF", "aa <<EOF\n$(bb)\nEOF", "aa <<EOF\n`bb`\nEOF", "aa <<EOF\nEO\\\nF\nbb\nEOF"),
    *("aa <<EOF\nEOF)\nbb\nEOF", "aa <<$x\nbb\n$x", "aa $(bb <<EOF)\ncc\nEOF", "aa <<EOF $(bb\n)\ncc\nEOF"),
    *("aa {fd}>bb", "x=(aa bb)", "aa >", "aa &> (bb)", 'aa "$\\\n(bb)"', "aa $\\\n(bb)", "aa;;bb", "aa ;& bb"),
    *("aa <\\\n(bb)", "i\\\nf aa; then bb; fi", "aa " + "$(" * 30 + ")" * 30, "a" * (MAX_CHARACTERS + 1)),
]

FRAGMENTS = [
    *("aa", "bb", "cc ", "aa ", " ", "\n", "\t", ";", "&&", "||", "|", "|&", "&", "(", ")", "{ ", "; }", "! ", "#"),
    *(" #", "'", '"', "\\", "\\\n", "'x y'", '"x y"', "$'", "$'\\x41\\n'", "\\'", '\\"', "$x", "${x}", "$", "$(", "`"),
    *("<(", ">(", "<<EOF", "<<'EOF'\n", "<<-EOF\n", "\nEOF\n", "\n\tEOF\n", "EOF", "<<<", ">", "<", "2>&1", "&>"),
    *(">&", "<&-", "{x}>", "x=", "=", "+=", "[", "]", "*", "?", "~", "{a,b}", "{}", "-", "1", "2>", "\r", "é", "$(("),
    *("((", "[[ ", "if ", "fi", "${x:-", "}", "case ", "in ", ";;", "time ", "function ", "coproc ", '"$(cc)"'),
    *("`bb`", '$"', "\\`", "%", "^", "!"),
]


def _command_words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in parse_command(text).commands if command.words]


def _may_be(command: SimpleCommand, words: list[str]) -> bool:
    """True if *words* equal those of *command* up to the first expansion."""
    for index, word in enumerate(command.words):
        if not word.is_literal:
            return True
        if words[index : index + 1] != [word.text]:
            return False
    return len(words) == len(command.words)


@pytest.mark.parametrize("text", LITERAL)
def test_words_of_a_literal_command_equal_those_of_bash(text: str, tmp_path: Path) -> None:
    line = parse_command(text)
    assert line.unclear is None
    assert not line.substituted
    assert all(word.is_literal for command in line.commands for word in command.words)
    assert _command_words(text) == LITERAL[text]
    assert sorted(ran_by_bash(text, tmp_path)) == sorted(LITERAL[text])


@pytest.mark.parametrize("text", UNCLEAR, ids=lambda text: ascii(text)[:40])
def test_ambiguous_command_line_is_unclear(text: str) -> None:
    assert parse_command(text).unclear is not None


@pytest.mark.parametrize(
    "text",
    [
        *("$(rm x)", "aa `rm x`", 'aa "$(rm x)"', 'aa "`rm x`"', "aa <(rm x)", "aa >(rm x)", "aa $(bb $(rm x))"),
        *("aa > $(rm x)", "x=$(rm x)", "aa $(bb | rm x)", "aa `bb \\`rm x\\``", 'aa "$(bb "$(rm x)")"'),
        *("aa <<<$(rm x)",),
        *("aa $(bb #)\nrm x)", "aa $( (rm x) )", "aa b<(rm x)c", "aa $(cat <<'E'\n)\nE\nrm x)"),
    ],
)
def test_commands_in_substitutions_are_separate(text: str) -> None:
    line = parse_command(text)
    assert ["rm", "x"] in [[word.text for word in command.words] for command in line.substituted]
    assert ["rm", "x"] not in _command_words(text)


PLAIN = [
    *("< bb", "2>&1", ">&2", "2>&-", ">/dev/null", "&>/dev/null", "<<<$x"),
    *("2>>/dev/null", "3>&1-", "< '/dev/null'", "<<E\nx\nE", "2>|/dev/null"),
]
NOT_PLAIN = [
    *("> bb", ">> bb", ">| bb", "&> bb", "&>> bb", ">& bb", "<> bb", "2>bb", "> /dev/null/../x", "> $x", "> /dev/tty"),
    *(">&$x", "<&x", ">/dev/nul*", "< /dev/tcp/host/80", "> /dev/udp/host/80", "< $x", "<&$x"),
]
ASSIGNING = ["x=1 aa", "PATH=. aa", "x+=1 aa", "x[1]=2 aa", "X=1 Y=2 aa", ">b aa", "F\\\nO=x aa"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"aa {rest}", True) for rest in PLAIN),
        *((text, False) for text in (*(f"aa {rest}" for rest in NOT_PLAIN), *ASSIGNING)),
    ],
)
def test_plain_command_has_no_assignment_and_no_write(text: str, *, expected: bool) -> None:
    (command,) = parse_command(text).commands
    assert command.is_plain == expected
    assert command.name == "aa"


@pytest.mark.parametrize(
    "text",
    ["aa $x", "aa *.py", "aa a?", "aa [ab]", "aa {a,b}", "aa ~/x", "aa x=~/y", "aa a{b..c}d", "aa $(bb)", "aa `b`c"],
)
def test_expanded_word_is_not_literal(text: str) -> None:
    (command,) = parse_command(text).commands
    assert [word.is_literal for word in command.words] == [True, False]


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@examples(60)
@given(st.lists(words, min_size=1, max_size=6))
def test_words_survive_quoting(given_words: list[str]) -> None:
    text = shlex.join(given_words)
    is_printable = all(letter.isprintable() or letter in "\t\n" for letter in text)
    # Keywords and assignments must be quoted here, but shlex does not quote them.
    if not re.fullmatch(r"[a-z]+|\w+\+?=.*", given_words[0], re.ASCII | re.DOTALL):
        assert _command_words(text) == [given_words]
        assert (parse_command(text).unclear is None) == is_printable


@pytest.mark.slow
@examples(80)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=2, max_size=14).map("".join))
@example(">&-bb")
@example("1{}\\{a,b}")
@example('aa "$\\\n(bb)"')
@example("{a,b}{a,b}")
def test_parser_sees_every_command_that_bash_runs(text: str) -> None:
    """Allow rules depend on this promise for clear lines, and deny rules for unclear lines."""
    line = parse_command(text)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        ran = ran_by_bash(text, Path(directory))
    for command in ran:
        if line.unclear is None:
            assert any(_may_be(seen, command) for seen in (*line.commands, *line.substituted)), command
        elif re.fullmatch(r"aa|bb|cc", command[0]):
            assert CommandPattern((command[0],), is_open=True).may_be_in(line), command
