"""Rules for Bash, with disguised commands."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import Allowed, Denied, NeedsPrompt, Verdict
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Workspace
from coterie.errors import ConfigInvalid

GIT = "Bash(git status:*)"
TWO = (GIT, "Bash(ls:*)")
RM = "Bash(rm:*)"
PUSH = "Bash(git push:*)"


def _rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text, "test") for text in texts)


def _judge(permissions: Permissions, command: str, directory: Path) -> Verdict:
    workspace = Workspace(root=directory, scratch=directory / "scratch")
    return permissions.evaluate(Bash(), BashInput(command=command), workspace)


Commands = Mapping[str | tuple[str, ...], Iterable[str]]


def _each(meant: Commands, others: Commands) -> pytest.MarkDecorator:
    """One case for each command under its rules."""
    rows = [(rules, each, True) for rules in meant for each in meant[rules]]
    rows += [(rules, each, False) for rules in others for each in others[rules]]
    return pytest.mark.parametrize(("rules", "command", "is_meant"), rows)


ALLOWED: Commands = {
    GIT: [
        *(f"git status{rest}" for rest in ("", " -s", " --porcelain | git status", " 2>&1", " >/dev/null", "\n", " ;")),
        *("git status *.py", "git status ~/x", "git status $HOME", "git status '; rm x'", 'git status "a && b"'),
        *("git status \\; rm", "git status # rm x", "git status <x", "git status <<E\nrm x\nE"),
        *("'git' status", 'gi"t" st\\atus', "g\\\nit status", "(git status)", "{ git status; }"),
        *("! git status", "git status; git status -s", "(git status) 2>&1"),
    ],
    TWO: ["ls && git status", "ls | git status", "ls & git status", "ls\ngit status", "ls||git status"],
    "Bash(npm run *)": ["npm run", "npm run test", "npm run test -- --watch"],
    "Bash(make test)": ["make test", "make 'test'", " make  test "],
    "Bash(echo 'a b':*)": ['echo "a b" c'],
    "Bash(sudo ls:*)": ["sudo ls -l"],
    "Bash(/bin/ls:*)": ["/bin/ls -l"],
    **dict.fromkeys(("Bash", "Bash(*)", "*"), ("rm -rf $(x) > y",)),
}
PROMPTING: Commands = {
    GIT: [
        *("git statusx", "git", "git -C x status", "git push", "git  'status -s'", "gitstatus", ""),
        *(f"git status{rest} rm x" for rest in (";", " &&", " ||", " |", " |&", " &", "\n", "\n\n", " #\n", ";#\n")),
        *(f"git status {rest}" for rest in ("$(rm x)", "`rm x`", "<(rm x)", ">(rm x)", '"$(rm x)"', '"`rm x`"')),
        *(f"git status {rest}" for rest in ("${x:-$(rm x)}", "$((a[$(rm x)]))", "$[x]", "${x@P}", '"$\\\n(rm x)"')),
        *(f"git status {rest}" for rest in ("> x", ">> x", ">| x", "&> x", ">& x", "2> x", "<> x", ">$x")),
        *("git status > .git/config", "git status > /dev/null; rm x", "git status > /dev/null/../../x"),
        *("git status < /dev/tcp/a/1", "git status >&- | rm x", ">&-git status >x"),
        *(f"{front}git status" for front in ("LD_PRELOAD=./x ", "PATH=. ", "GIT_SSH_COMMAND=x ", "x+=1 ", "x[0]=1 ")),
        *(f"{front} git status" for front in ("sudo", "env", "xargs", "command", "exec", "eval", "nohup", "time")),
        *("timeout 5 git status", "./git status", "/opt/git status", "../git status", "$x status", "git $x"),
        *("gi? status", "{git,} status", "git() { rm x; }; git status", "function git { rm x; }\ngit status"),
        *("alias git=rm; git status", "if git status; then git status; fi", "for x in a; do git status; done"),
        *("[[ a ]] && git status", "git status\r", "git\xa0status", "git status\0", "git status \x1b[0m"),
        *("git\u2003status -s", "git status 'x", 'git status "x', "git status \\", "git status $'x"),
        *("git status )", "(git status", "git status <<E\n$(rm x)\nE", "git status <<E\nE\\\n\nrm x\nE"),
        *("git status <<E\nx", "git status <<E\nE\nrm x", "git status <<'E'\nE \nE\nrm x"),
        "git status <<-E\n\tE\nrm x\nE",
    ],
    TWO: ["ls && rm x", "ls; git status; git push", "ls $(git status)", "x=1; ls", "coproc ls", "{x}>y ls"],
    "Bash(make test)": ["make test x", "make", "make $x", "make tes?", "make test; make"],
    "Bash(printf:*)": ["printf -v 'a[$(rm x)]' y", "printf -v 'a[`rm x`]' y"],
    "Bash(test:*)": ["test -v 'a[$(rm x)]'"],
    "Bash(bash:*)": ["bash", "echo rm | bash", "bash -s", "bash <<< 'rm x'"],
    "Edit": ["ls"],
    "Read(**)": ["ls"],
    "Bash(ls)": ["ls -l"],
    "Bash(ls :*)": ["lsof"],
}


@_each(ALLOWED, PROMPTING)
def test_only_a_fully_covered_command_is_allowed(
    rules: str | tuple[str, ...], command: str, tmp_path: Path, *, is_meant: bool
) -> None:
    allow = _rules(*([rules] if isinstance(rules, str) else rules))
    verdict = _judge(Permissions(allow=allow), command, tmp_path)
    if is_meant:
        assert isinstance(verdict, Allowed)
        assert verdict.by is not None
    else:
        assert isinstance(verdict, NeedsPrompt)
        assert isinstance(_judge(Permissions(mode="dontAsk", allow=allow), command, tmp_path), Denied)


DENIED: Commands = {
    RM: [
        *("rm", "rm x", "true; rm -rf x", "true && rm x", "true | rm x", "true & rm x", "true\nrm x", "(rm x)"),
        *("$(rm x)", "`rm x`", 'echo "$(rm x)"', "echo <(rm x)", "x=$(rm x)", "echo ${x:-$(rm x)}"),
        *("r\\m x", "'rm' x", 'r"m" x', "r''m x", "$'\\x72m' x", "$'r\\155' x", "r\\\nm x", '$"rm" x'),
        *("/bin/rm x", "../../bin/rm x", "/bin/r? x", "/bin/[r]m x", "$BIN/rm x", "{r,x}m y", "r$()m x", "*m x"),
        *("sudo rm x", "sudo -u bob rm x", "env -i A=b rm x", "xargs -n 1 rm", "nohup nice -n 5 rm x"),
        *("timeout 5 rm x", "command rm x", "builtin rm", "exec rm x", "eval rm x", "eval 'true; rm x'"),
        *("bash -c 'rm x'", "sh -c \"true; r''m x\"", "bash -c \"bash -c 'rm x'\"", "find . -exec rm {} +"),
        *("echo rm x | sh", "bash <<< 'rm x'", "bash <<E\nrm x\nE", "trap 'rm x' EXIT", "/usr/bin/env rm x"),
        *("if true; then rm x; fi", "while rm x; do :; done", "case x in x) rm x;; esac", "f() { rm x; }; f"),
        *("for i in 1; do rm $i; done", "{ rm x; }", "! rm x", "time rm x", "coproc rm x", "[[ $(rm x) ]]"),
        *("X=1 rm x", ">y rm x", "2>&1 rm x", ">&-rm x", "X=rm; $X y", "cat <<E\n$(rm x)\nE", "echo 'x\nrm y"),
        *("echo\rrm x", "true #\nrm x", "printf -v 'a[$(rm x)]' y", "cat <<E\nE\nrm x", "rm\tx", "'/bin/rm' x"),
    ],
    PUSH: ["git push", "git push -f", "git $x", "git $x push", 'git "$x" y', "sudo git push", "git p?sh"],
    "Bash(git push)": ["git push", "true; git push"],
    "Bash(/bin/rm:*)": ["/bin/rm x", "sudo /bin/rm x"],
    **dict.fromkeys(("Bash", "Bash(*)", "*"), ("true",)),
}
IGNORED: Commands = {
    RM: [
        *("echo rm", "ls rm/x", "farm x", "rmdir x", "git rm x", "grep 'rm -rf' x", "echo 'a; rm x'", "ls # rm x"),
        *("git commit -m \"$(cat <<'E'\nrm the cache\nE\n)\"", "cat <<E\nrm x\nE", "echo $HOME rm", "rm=1 true"),
    ],
    PUSH: [*("git status", "git commit -m push", "git log $x", "sudo git status", "git pushx", "echo git push")],
    "Bash(git push)": ["git push origin", "git"],
    "Bash(/bin/rm:*)": ["rm x", "/usr/bin/rm x"],
    **dict.fromkeys(("Edit", "Read(**)", "Write(x)"), ("rm x",)),
}


@_each(DENIED, IGNORED)
def test_deny_rule_finds_a_hidden_command_and_no_other(
    rules: str, command: str, tmp_path: Path, *, is_meant: bool
) -> None:
    for mode in ("default", "bypassPermissions"):
        verdict = _judge(Permissions(mode=mode, allow=_rules("Bash"), deny=_rules(rules)), command, tmp_path)
        assert isinstance(verdict, Denied if is_meant else Allowed), mode
        assert verdict.by == rules or not is_meant
    asked = _judge(Permissions(allow=_rules("Bash"), ask=_rules(rules)), command, tmp_path)
    assert isinstance(asked, NeedsPrompt if is_meant else Allowed)


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("git push origin main", ["Bash(git push:*)"]),
        ("npm run test", ["Bash(npm run:*)"]),
        ("ls -l", ["Bash(ls:*)"]),
        ("ls && make test", ["Bash(ls:*)", "Bash(make test:*)"]),
        ("git status && git push", ["Bash(git push:*)"]),
        ("git -C x push", ["Bash(git -C x push)"]),
        ("rm 'a b'", ["Bash(rm 'a b')"]),
        ("sudo ls", ["Bash(sudo ls)"]),
        ("python -c 'x'", ["Bash(python -c x)"]),
        *(
            (unsuitable, [])
            for unsuitable in ("ls $(x)", "ls > x", "X=1 ls", "ls 'x", "ls *", "if ls; then ls; fi", "bash")
        ),
    ],
)
def test_proposed_rules_are_narrow_and_sufficient(command: str, rules: list[str], tmp_path: Path) -> None:
    permissions = Permissions(allow=_rules(GIT))
    verdict = _judge(permissions, command, tmp_path)
    assert isinstance(verdict, NeedsPrompt)
    assert list(verdict.question.rules) == rules
    written = Permissions(allow=_rules(GIT, *rules))
    assert isinstance(_judge(written, command, tmp_path), Allowed if rules else NeedsPrompt)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        *((text, "is not a rule") for text in ("", "Bash(ls", "ls -l", "Bash(ls) x", "(ls)", "Ba sh", "?")),
        *((text, "brackets of the rule are empty") for text in ("Bash()", "Edit( )")),
        *(
            (text, "not one simple command")
            for text in ("Bash(ls; rm)", "Bash(a | b:*)", "Bash(:*)", "Bash('x)", "Bash(if:*)")
        ),
        *((text, "use only words") for text in ("Bash(X=1 ls)", "Bash(ls > x:*)")),
        *((text, "shell expands") for text in ("Bash(ls*)", "Bash(git * main)", "Bash(a $x:*)", "Bash(~/x:*)")),
        *((text, "absolute path") for text in ("Edit(../x)", "Read(a/../../b)")),
        ("bash(ls)", "did you mean 'Bash'"),
        ("*(x)", "every tool"),
        ("Edit(a{b)", "without a matching }"),
    ],
)
def test_a_malformed_rule_is_refused_with_its_source(text: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=hint) as caught:
        Rule.parse(text, "settings.toml")
    assert caught.value.source == "settings.toml"
    assert repr(text) in caught.value.reason
    assert "\n" not in str(caught.value)
