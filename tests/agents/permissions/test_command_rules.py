"""Rules for Bash, with disguised commands."""

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


@pytest.mark.parametrize(
    ("rules", "command"),
    [
        *(
            (GIT, f"git status{rest}")
            for rest in ("", " -s", " --porcelain | git status", " 2>&1", " >/dev/null", "\n", " ;")
        ),
        *(
            (GIT, f"git status {rest}")
            for rest in ("*.py", "~/x", "$HOME", "'; rm x'", '"a && b"', "\\; rm", "# rm x", "<x")
        ),
        *(
            (GIT, text)
            for text in ("'git' status", 'gi"t" st\\atus', "g\\\nit status", "(git status)", "{ git status; }")
        ),
        *(
            (GIT, text)
            for text in ("! git status", "git status; git status -s", "(git status) 2>&1", "git status <<E\nrm x\nE")
        ),
        *(
            (TWO, text)
            for text in ("ls && git status", "ls | git status", "ls & git status", "ls\ngit status", "ls||git status")
        ),
        *(("Bash(npm run *)", text) for text in ("npm run", "npm run test", "npm run test -- --watch")),
        *(("Bash(make test)", text) for text in ("make test", "make 'test'", " make  test ")),
        ("Bash(echo 'a b':*)", 'echo "a b" c'),
        ("Bash(sudo ls:*)", "sudo ls -l"),
        ("Bash(/bin/ls:*)", "/bin/ls -l"),
        *((everything, "rm -rf $(x) > y") for everything in ("Bash", "Bash(*)", "*")),
    ],
)
def test_fully_covered_command_is_allowed(rules: str | tuple[str, ...], command: str, tmp_path: Path) -> None:
    allow = _rules(*([rules] if isinstance(rules, str) else rules))
    verdict = _judge(Permissions(allow=allow), command, tmp_path)
    assert isinstance(verdict, Allowed)
    assert verdict.by is not None


@pytest.mark.parametrize(
    ("rules", "command"),
    [
        *(
            (GIT, text)
            for text in ("git statusx", "git", "git -C x status", "git push", "git  'status -s'", "gitstatus", "")
        ),
        *(
            (GIT, f"git status{rest} rm x")
            for rest in (";", " &&", " ||", " |", " |&", " &", "\n", "\n\n", " #\n", ";#\n")
        ),
        *((GIT, f"git status {rest}") for rest in ("$(rm x)", "`rm x`", "<(rm x)", ">(rm x)", '"$(rm x)"', '"`rm x`"')),
        *(
            (GIT, f"git status {rest}")
            for rest in ("${x:-$(rm x)}", "$((a[$(rm x)]))", "$[x]", "${x@P}", '"$\\\n(rm x)"')
        ),
        *(
            (GIT, f"git status {rest}")
            for rest in ("> x", ">> x", ">| x", "&> x", ">& x", "2> x", "<> x", ">$x", "> .git/config")
        ),
        *(
            (GIT, f"git status {rest}")
            for rest in ("> /dev/null; rm x", "> /dev/null/../../x", "< /dev/tcp/a/1", ">&- | rm x")
        ),
        *(
            (GIT, f"{front}git status")
            for front in ("LD_PRELOAD=./x ", "PATH=. ", "GIT_SSH_COMMAND=x ", "x+=1 ", "x[0]=1 ")
        ),
        *(
            (GIT, f"{front} git status")
            for front in ("sudo", "env", "xargs", "command", "exec", "eval", "nohup", "timeout 5", "time")
        ),
        *((GIT, text) for text in ("./git status", "/opt/git status", "../git status", "$x status", "git $x")),
        *((GIT, text) for text in ("gi? status", "{git,} status")),
        *((GIT, text) for text in ("git() { rm x; }; git status", "function git { rm x; }\ngit status")),
        *((GIT, text) for text in ("alias git=rm; git status",)),
        *((GIT, text) for text in ("if git status; then git status; fi", "for x in a; do git status; done")),
        *((GIT, text) for text in ("[[ a ]] && git status",)),
        *(
            (GIT, text)
            for text in ("git status\r", "git\xa0status", "git status\0", "git status \x1b[0m", "git\u2003status -s")
        ),
        *((GIT, text) for text in ("git status 'x", 'git status "x', "git status \\", "git status $'x")),
        *((GIT, text) for text in ("git status )", "(git status")),
        *((GIT, text) for text in ("git status <<E\n$(rm x)\nE", "git status <<E\nE\\\n\nrm x\nE")),
        *((GIT, text) for text in ("git status <<E\nx", ">&-git status >x")),
        *(
            (GIT, text)
            for text in ("git status <<E\nE\nrm x", "git status <<'E'\nE \nE\nrm x", "git status <<-E\n\tE\nrm x\nE")
        ),
        *((TWO, text) for text in ("ls && rm x", "ls; git status; git push", "ls $(git status)", "x=1; ls")),
        *((TWO, text) for text in ("coproc ls", "{x}>y ls")),
        *(("Bash(make test)", text) for text in ("make test x", "make", "make $x", "make tes?", "make test; make")),
        *(("Bash(printf:*)", text) for text in ("printf -v 'a[$(rm x)]' y", "printf -v 'a[`rm x`]' y")),
        *(("Bash(test:*)", text) for text in ("test -v 'a[$(rm x)]'",)),
        *(("Bash(bash:*)", text) for text in ("bash", "echo rm | bash", "bash -s", "bash <<< 'rm x'")),
        *(("Edit", "ls"), ("Read(**)", "ls"), ("Bash(ls)", "ls -l"), ("Bash(ls :*)", "lsof")),
    ],
)
def test_partly_covered_command_prompts(rules: str | tuple[str, ...], command: str, tmp_path: Path) -> None:
    allow = _rules(*([rules] if isinstance(rules, str) else rules))
    assert isinstance(_judge(Permissions(allow=allow), command, tmp_path), NeedsPrompt)
    assert isinstance(_judge(Permissions(mode="dontAsk", allow=allow), command, tmp_path), Denied)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        *((RM, text) for text in ("rm", "rm x", "true; rm -rf x", "true && rm x", "true | rm x", "true & rm x")),
        *((RM, text) for text in ("true\nrm x", "(rm x)")),
        *(
            (RM, text)
            for text in ("$(rm x)", "`rm x`", 'echo "$(rm x)"', "echo <(rm x)", "x=$(rm x)", "echo ${x:-$(rm x)}")
        ),
        *(
            (RM, text)
            for text in ("r\\m x", "'rm' x", 'r"m" x', "r''m x", "$'\\x72m' x", "$'r\\155' x", "r\\\nm x", '$"rm" x')
        ),
        *((RM, text) for text in ("/bin/rm x", "../../bin/rm x", "/bin/r? x", "/bin/[r]m x", "$BIN/rm x")),
        *((RM, text) for text in ("{r,x}m y", "r$()m x", "*m x")),
        *(
            (RM, text)
            for text in ("sudo rm x", "sudo -u bob rm x", "env -i A=b rm x", "xargs -n 1 rm", "nohup nice -n 5 rm x")
        ),
        *(
            (RM, text)
            for text in ("timeout 5 rm x", "command rm x", "builtin rm", "exec rm x", "eval rm x", "eval 'true; rm x'")
        ),
        *((RM, text) for text in ("bash -c 'rm x'", "sh -c \"true; r''m x\"", "bash -c \"bash -c 'rm x'\"")),
        *((RM, text) for text in ("find . -exec rm {} +",)),
        *((RM, text) for text in ("echo rm x | sh", "bash <<< 'rm x'", "bash <<E\nrm x\nE", "trap 'rm x' EXIT")),
        *((RM, text) for text in ("/usr/bin/env rm x",)),
        *((RM, text) for text in ("if true; then rm x; fi", "while rm x; do :; done", "case x in x) rm x;; esac")),
        *((RM, text) for text in ("f() { rm x; }; f",)),
        *((RM, text) for text in ("for i in 1; do rm $i; done", "{ rm x; }", "! rm x", "time rm x", "coproc rm x")),
        *((RM, text) for text in ("[[ $(rm x) ]]",)),
        *((RM, text) for text in ("X=1 rm x", ">y rm x", "2>&1 rm x", ">&-rm x", "X=rm; $X y")),
        *((RM, text) for text in ("cat <<E\n$(rm x)\nE", "echo 'x\nrm y")),
        *((RM, text) for text in ("echo\rrm x", "true #\nrm x", "printf -v 'a[$(rm x)]' y", "cat <<E\nE\nrm x")),
        *((RM, text) for text in ("rm\tx", "'/bin/rm' x")),
        *(
            (PUSH, text)
            for text in ("git push", "git push -f", "git $x", "git $x push", 'git "$x" y', "sudo git push", "git p?sh")
        ),
        *(("Bash(git push)", text) for text in ("git push", "true; git push")),
        *(("Bash(/bin/rm:*)", text) for text in ("/bin/rm x", "sudo /bin/rm x")),
        *((everything, "true") for everything in ("Bash", "Bash(*)", "*")),
    ],
)
def test_deny_rule_finds_a_hidden_command(rule: str, command: str, tmp_path: Path) -> None:
    for mode in ("default", "bypassPermissions"):
        verdict = _judge(Permissions(mode=mode, allow=_rules("Bash"), deny=_rules(rule)), command, tmp_path)
        assert isinstance(verdict, Denied), mode
        assert verdict.by == rule
    assert isinstance(_judge(Permissions(allow=_rules("Bash"), ask=_rules(rule)), command, tmp_path), NeedsPrompt)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        *((RM, text) for text in ("echo rm", "ls rm/x", "farm x", "rmdir x", "git rm x", "grep 'rm -rf' x")),
        *((RM, text) for text in ("echo 'a; rm x'", "ls # rm x")),
        *((RM, text) for text in ("git commit -m \"$(cat <<'E'\nrm the cache\nE\n)\"", "cat <<E\nrm x\nE")),
        *((RM, text) for text in ("echo $HOME rm", "rm=1 true")),
        *((PUSH, text) for text in ("git status", "git commit -m push", "git log $x", "sudo git status")),
        *((PUSH, text) for text in ("git pushx", "echo git push")),
        *(("Bash(git push)", text) for text in ("git push origin", "git")),
        *(("Bash(/bin/rm:*)", text) for text in ("rm x", "/usr/bin/rm x")),
        *((other, "rm x") for other in ("Edit", "Read(**)", "Write(x)")),
    ],
)
def test_deny_rule_ignores_other_commands(rule: str, command: str, tmp_path: Path) -> None:
    verdict = _judge(Permissions(mode="bypassPermissions", deny=_rules(rule)), command, tmp_path)
    assert isinstance(verdict, Allowed)


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
        *((text, "brackets are empty") for text in ("Bash()", "Edit( )")),
        *(
            (text, "not one simple command")
            for text in ("Bash(ls; rm)", "Bash(a | b:*)", "Bash(:*)", "Bash('x)", "Bash(if:*)")
        ),
        *((text, "only words are allowed") for text in ("Bash(X=1 ls)", "Bash(ls > x:*)")),
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
