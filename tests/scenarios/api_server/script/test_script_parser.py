import re
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.scenarios.api_server.script.http_faults import HttpFault
from coterie.scenarios.api_server.script.script_parser import Script, ScriptInvalid, load_script, parse_script
from coterie.scenarios.api_server.script.scripted_reply import ScriptedReply
from tests.examples import examples


def read(text: str) -> tuple[ScriptedReply, ...]:
    return parse_script(dedent(text), "s.yaml").replies["default"]


def only(text: str) -> ScriptedReply:
    (reply,) = read(text)
    return reply


def test_a_bare_string_is_a_text_reply_even_if_it_looks_like_a_number_or_a_boolean() -> None:
    script = parse_script("lead: [a]\ndefault: [hello, 42, no, true]", "s.yaml")
    assert [reply.content[0]["text"] for reply in script.replies["default"]] == ["hello", "42", "no", "true"]
    assert script.replies.keys() == {"lead", "default"}


def test_every_key_of_a_reply_is_read() -> None:
    reply = only("""
        default:
          - text: Let me look.
            thinking: [First the file., Then the test.]
            tools:
              - Read: {file_path: src/a.py, limit: 5, deep: [1.5, null, true, {a: b}]}
              - {name: Bash, input: {command: ls}, id: toolu_fixed}
              - Ping:
            delay: .5
            token_delay: 0.01
            until: plan-approved
            signal: [a, b]
            purpose: recall
            times: 2
            fault: overloaded
    """)
    assert reply.content == (
        {"type": "thinking", "thinking": "First the file."},
        {"type": "thinking", "thinking": "Then the test."},
        {"type": "text", "text": "Let me look."},
        {
            "type": "tool_use",
            "name": "Read",
            "input": {"file_path": "src/a.py", "limit": 5, "deep": [1.5, None, True, {"a": "b"}]},
        },
        {"type": "tool_use", "id": "toolu_fixed", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "name": "Ping", "input": {}},
    )
    assert (reply.stop, reply.delay, reply.token_delay) == ("tool_use", 0.5, 0.01)
    assert (reply.until, reply.signals) == (("plan-approved",), ("a", "b"))
    assert (reply.purpose, reply.times, reply.fault) == ("recall", 2, HttpFault(kind="overloaded"))
    assert (reply.name, reply.line) == ("default[1]", 3)


def test_literal_content_keeps_its_order() -> None:
    reply = only("""
        default:
          - content:
              - {text: a}
              - {tool: Read, input: {path: x}, id: toolu_1}
              - {thinking: b}
              - {redacted_thinking: c}
              - plain
              - {type: server_tool_use, id: srvtoolu_1, name: web_search, input: {query: q}}
              - {type: text, text: d}
    """)
    assert [block["type"] for block in reply.content] == [
        *("text", "tool_use", "thinking", "redacted_thinking", "text", "server_tool_use", "text")
    ]
    assert reply.content[1] == {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "x"}}
    assert reply.content[3] == {"type": "redacted_thinking", "data": "c"}
    assert reply.stop == "tool_use"


def test_always_serves_without_end_and_aliases_are_resolved() -> None:
    replies = read("default: [{text: a, times: always}, {text: b, purpose: recall}, {text: c, when: {turn: 1}}]")
    assert [reply.times for reply in replies] == [None, 1, None], "sequences of other purposes go on"
    first, second = read("default: [&a {text: hello, tools: [Read: {path: x}]}, *a]")
    assert first.content == second.content
    assert (first.name, second.name) == ("default[1]", "default[2]")


BAD = {
    "": (1, "the script is empty; expected a mapping of agents to lists of replies"),
    "# nothing\n": (1, "the script is empty"),
    "- a": (1, "the script must be a mapping of agents to lists of replies"),
    "{}": (1, "the script is an empty mapping"),
    "default: hello": (1, "default must be a list of replies, not 'hello'"),
    "default:\n": (1, "default must be a list of replies, not nothing"),
    "default: []": (1, "default is an empty list; expected a list of replies"),
    "a: [x]\ndefault:\n  - text: a\n    txet: b": (4, "default[1] has an unknown key 'txet'; did you mean 'text'?"),
    "default:\n- text: a\n  text: b": (3, "the key 'text' of default[1] is also on line 2"),
    "default: [x]\ndefault: [y]": (2, "the key 'default' of the script is also on line 1"),
    "default:\n- delay: 1": (2, "default[1] is empty; add text, thinking, tools or content, or a stop"),
    "default:\n-": (2, "default[1] must be text or a mapping with text, tools or content, not nothing"),
    "default:\n- text:\n    - a": (3, "text must be text, not a list"),
    "default: [{text: ''}]": (1, "text must be text, not ''"),
    "default:\n- text: a\n  delay: soon": (3, "delay must be a number of seconds, not 'soon'"),
    "default: [{text: a, token_delay: -1}]": (1, "token_delay must be a number of seconds, not '-1'"),
    "default: [{text: a, delay: true}]": (1, "delay must be a number of seconds, not 'true'"),
    "default: [{text: a, times: 0}]": (1, "times must be a whole number from 1, or always, not '0'"),
    "default: [{text: a, times: [1]}]": (1, "times must be a whole number from 1, or always, not a list"),
    "default: [{text: a, until: []}]": (1, "until is an empty list; expected a name or a list of names"),
    "default: [{text: a, signal: {b: c}}]": (1, "signal must be a name or a list of names, not a mapping"),
    "default: [{text: a, signal: [[b]]}]": (1, "signal[1] must be a name, not a list"),
    "default:\n- text: a\n  stop: end_trun": (3, "unknown stop 'end_trun'; did you mean 'end_turn'?"),
    "default: [{stop: refusal, refusal: {category: cybr}}]": (1, "unknown category 'cybr'; did you mean 'cyber'?"),
    "default: [{text: a, refusal: {category: cyber}}]": (1, "refusal can be used only with `stop: refusal`"),
    "default:\n- text: a\n  fault: overlaoded": (3, "unknown fault 'overlaoded'; did you mean 'overloaded'?"),
    "default:\n- text: a\n  fault:\n    kind: cut\n    aftr: 1": (4, "a fault has no key 'aftr'; did you mean 'after'"),
    "default: [{text: a, tools: []}]": (1, "tools is an empty list; expected a list of tool calls"),
    "default: [{text: a, tools: {Read: {}}}]": (1, "tools must be a list of tool calls"),
    "default: [{tools: [Read]}]": (1, "tools[1] must be one tool call, such as `Read: {path: a}`, not 'Read'"),
    "default:\n- tools:\n  - Read: {a: b}\n    Bash: {}": (3, "tools[1] names 2 tools (Read, Bash)"),
    "default: [{tools: [Read: 5]}]": (1, "the input of tool Read must be a mapping"),
    "default: [{tools: [{name: Read, inputs: {}}]}]": (1, "tools[1] has an unknown key 'inputs'"),
    "default: [{text: a, content: [b]}]": (1, "default[1] has content and text; move text into content"),
    "default: [{content: [{text: a, thinking: b}]}]": (1, "content[1] must be one block"),
    "default: [{content: [{input: {}}]}]": (1, "content[1] must be one block"),
    "default: [{content: [{type: tool_use, name: a}]}]": (1, "a tool_use block needs a mapping as its input"),
    "default: [{content: [{type: text, text: 5}]}]": (1, "a text block needs text as its text"),
    "default: [{content: [{type: [a]}]}]": (1, "type must be a block type, not a list"),
    "default:\n- text: a\n  when: {}": (3, "when is an empty mapping; expected conditions"),
    "default:\n- a\n- {text: a, when: {user_text: b}}": (3, "when has an unknown key 'user_text'; did you mean 'last_"),
    "default:\n- text: a\n  when:\n    last_user_text: /(/": (4, "the regular expression /(/ is invalid"),
    "default: [{text: a, when: {last_user_text: '/[[a]/'}}]": (1, "the regular expression /[[a]/ is invalid"),
    "default: [{text: a, when: {last_user_text: /a/q}}]": (1, "unknown flag 'q'"),
    "default: [{text: a, when: {last_user_text: [b]}}]": (1, "last_user_text must be text or a /regular expression/"),
    "default: [{text: a, when: {turn: 0}}]": (1, "turn must be a whole number from 1, not '0'"),
    "default: [{text: a, purpose: b, when: {purpose: c}}]": (1, "the reply has the purpose 'b' already; give it once"),
    "default:\n- text: a\n- text: '{{lst_user_text}}'": (3, "unknown slot {{lst_user_text}}; did you mean 'last_"),
    "default:\n- tools:\n  - Bash:\n      command: 'echo {{x'": (4, "the slot '{{x' is not closed; add }}."),
    "default: [{text: 'a {{match.1}}'}]": (1, "{{match.1}} needs a `when` with a regular expression"),
    "default: [{text: '{{match.2}}', when: {model: /(a)/}}]": (1, "{{match.2}} is wrong: the regular expression"),
    "default:\n- text: a\n  times: always\n- b": (4, "default[2] is never used: default[1] on line 2"),
    "default: [a\n": (1, "the text is not valid YAML: did not find expected ',' or ']' while parsing"),
    "default:\n- a: b: c": (2, "the text is not valid YAML: mapping values are not allowed in this context"),
    "default: [a]\nx: \a": (2, "the text is not valid YAML: control characters are not allowed"),
    "é: [a]\nx: \ud800": (2, "the text is not valid YAML: half of a surrogate pair"),
    "default: [a]\n---\nb": (2, "a second YAML document starts here; keep only one"),
    "default:\n- *b": (2, "the alias *b has no anchor &b before it"),
    "default: &b\n- *b": (2, "the alias *b has no anchor &b before it"),
    "default: [!!binary aGk=]": (1, "unknown YAML tag tag:yaml.org,2002:binary"),
    "default: [{text: a, [b]: c}]": (1, "a key of default[1] must be text, not a list"),
    "default: [{tools: [a: {b: 1e999}]}]": (1, "the number '1e999' is too large; quote it to make it text"),
    "default: [{tools: [a: {b: 99999999999999999999}]}]": (1, "the number '99999999999999999999' is too large"),
    "default: " + "[" * 100_000: (1, "the value is nested deeper than 64 levels"),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:40]))
def test_script_error_has_the_line_and_the_reason(text: str) -> None:
    line, reason = BAD[text]
    with pytest.raises(ScriptInvalid) as caught:
        parse_script(text, "s.yaml")
    assert str(caught.value).startswith(f"s.yaml, line {line}: {reason}")
    assert (caught.value.source, caught.value.line) == ("s.yaml", line)
    assert "\n" not in str(caught.value)


def test_alias_expansion_is_limited() -> None:
    """Nine lines with nested aliases would expand to 10^10 values."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ScriptInvalid, match="line 6: the file has more than 200,000 values"):
        parse_script("\n".join(lines), "s.yaml")


def test_a_file_is_loaded_under_its_name_and_else_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("default: [héllo]", encoding="utf-8")
    script = load_script(path)
    assert script.source == str(path)
    assert script.replies["default"][0].content == ({"type": "text", "text": "héllo"},)
    path.write_bytes(b"default:\n- ok\n- h\xe9llo\n")
    for bad, words in (
        (path, f"{path}, line 3: the script is not UTF-8: invalid continuation byte; convert the file"),
        (
            tmp_path / "no.yaml",
            f"{tmp_path / 'no.yaml'}: the script cannot be read: No such file or directory; correct the path",
        ),
    ):
        with pytest.raises(ScriptInvalid) as caught:
            load_script(bad)
        assert str(caught.value) == words


WORDS = st.sampled_from(
    [
        *("default", "text", "tools", "when", "content", "fault", "stop", "times", "always", "turn", "last_user_text"),
        *("name", "input", "id", "type", "tool_use", "kind", "cut", "/a(/", "{{", "}}", "{{turn}}", "{{match.0}}"),
        *("!", "!!str", "*", "&", "&a", "*a", "?", "|", ">", "'", '"', "#", "%", "@", "`", *"[]{},:-"),
        *("null", "true", "1", "-1", ".5", "1e9"),
    ]
)
SPACES = st.sampled_from([" ", "\n", "\n  ", ": ", ", ", "\n- ", ""])


@pytest.mark.slow
@examples(80)
@given(st.text(max_size=60) | st.lists(st.tuples(WORDS, SPACES), max_size=30).map(lambda w: "".join(map("".join, w))))
@example("\ufeff")
@example("%YAML 9.9\n---\na")
@example("--- \n...\n")
def test_any_text_is_a_script_or_script_invalid(text: str) -> None:
    outcome = script_or_line(text)
    if isinstance(outcome, Script):
        assert all(outcome.replies.values())
    else:
        assert outcome is not None
        assert 1 <= outcome <= len(text.splitlines()) + 1


def script_or_line(text: str) -> Script | int | None:
    try:
        return parse_script(text, "s.yaml")
    except ScriptInvalid as exc:
        return exc.line


# PyYAML writes some control characters in a way that no reader gives back.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=5)


def _is_plain(text: str) -> bool:
    # PyYAML takes 1e5 for text and does not quote it, as a newer version of YAML asks for.
    return "{{" not in text and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT.filter(_is_plain),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@examples(40)
@given(st.dictionaries(TEXT, JSON, max_size=3))
def test_tool_input_is_parsed_unchanged(value: dict[str, object]) -> None:
    text = yaml.safe_dump({"default": [{"tools": [{"name": "T", "input": value}]}]}, allow_unicode=True)
    assert parse_script(text, "s.yaml").replies["default"][0].content[0]["input"] == value
