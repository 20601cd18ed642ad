"""Tests of the conversion from HTML to Markdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.web.html_to_markdown_worker import to_markdown

URL = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>A &amp; B</h1><h3>C</h3>text", "# A & B\n\n### C\n\ntext"),
        ("<p>one\n two</p><p>three", "one two\n\nthree"),
        ("a<br>b", "a\nb"),
        ("<a href='/x'>to\nx</a> and <a href='#y'>y</a>", "[to x](https://example.org/x) and y"),
        ("<a href='javascript:z()'>z</a>", "z"),
        ("<a href='c?d=1#e'><b>bold</b></a>", "[**bold**](https://example.org/a/c?d=1#e)"),
        ("<a href='http://[bad'>x</a>", "[x](http://[bad)"),
        ("<ul><li>a<li>b<ul><li>c<li>d</ul><li>e</ul>f", "- a\n- b\n  - c\n  - d\n- e\n\nf"),
        ("<ol start=9><li>a</li><li><p>b</p><p>c</p></li></ol>", "9. a\n10. b\n  c"),
        ("<pre>  if x:\n    y &lt; z\n</pre>", "```\n  if x:\n    y < z\n```"),
        ("use <code>a  b</code>", "use `a b`"),
        ("<blockquote>a<p>b</blockquote>c", "> a\n\n> b\n\nc"),
        ("<table><tr><th>A<th>B<tr><td>1|2<td><p>x</p><p>y</p></table>", "| A | B |\n|---|---|\n| 1\\|2 | x y |"),
        ("<table><tr><td>laid<tr><td>out</table>", "laid\n\nout"),
        ("<script>a</script><style>b</style><noscript>c</noscript><svg><text>d</text></svg>e", "e"),
        ("<head><title>T</title><meta x>no<body>yes", "# T\n\nyes"),
        ("<img src=a alt='a cat'><img src=b>", "[image: a cat]"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("</ul></li></table></b>x", "x"),
        ("<!-- no -->y", "y"),
    ],
)
def test_html_becomes_markdown(html: str, text: str) -> None:
    assert to_markdown(html, URL) == text


NAMES = ["ul", "ol", "li", "table", "tr", "td", "th", "pre", "code", "a", "p", "div", "h1", "b", "blockquote", "br"]
TAGS = st.sampled_from([*NAMES, "title", "head", "body", "script", "svg"])
PARTS = st.lists(
    st.one_of(TAGS.map("<{}>".format), TAGS.map("</{}>".format), st.text(max_size=5), st.just("<a href=x>"))
)


@given(PARTS)
def test_any_broken_html_is_converted(parts: list[str]) -> None:
    text = to_markdown("".join(parts), URL)
    assert "\n\n\n" not in text


def test_deeply_nested_html_is_converted() -> None:
    text = to_markdown("<ul><li>" * 3_000 + "deep" + "<div>" * 3_000, URL)
    assert text.strip("- \n") == "deep"
