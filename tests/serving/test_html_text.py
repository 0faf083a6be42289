"""HTML: the same tags around translated texts, and no markup that was not there."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.serving.html_text import parse_html


def capitals(text: str) -> str:
    page = parse_html(text)
    return page.join([one.upper() for one in page.texts])


CASES = {
    "tags": ("<p>one <b>two</b> three</p>", "<p>ONE <b>TWO</b> THREE</p>"),
    "attributes": (
        '<a href="/x?a=1&amp;b=2" title=\'a "b"\'>one</a>',
        '<a href="/x?a=1&amp;b=2" title="a &quot;b&quot;">ONE</a>',
    ),
    "empty elements": ("one<br>two<img src=x.png />", 'ONE<br>TWO<img src="x.png" />'),
    "escaped tags stay text": ("&lt;script&gt;one&lt;/script&gt;", "&lt;SCRIPT&gt;ONE&lt;/SCRIPT&gt;"),
    "references": ("caf&eacute; &amp; bar &nbsp;", "CAFÉ &amp; BAR \xa0"),
    "event handlers": ('<p onclick="x()" ONLOAD=y class="a">one</p>', '<p class="a">ONE</p>'),
    "script links": ('<a href=" java\nscript:x()">one</a>', "<a>ONE</a>"),
    "scripts": ("<script>if (a < b) x('one')</script>two", "<script>if (a < b) x('one')</script>TWO"),
    "code": ("<code>one &lt; <i>two</i></code> three", "<code>one &lt; <i>two</i></code> THREE"),
    "not to be translated": ('<p translate="no">one <b>two</b></p> three', '<p translate="no">one <b>two</b></p> THREE'),
    "comments": ("<!-- one -->two<!--><script>x()</script>-->", "<!-- one -->TWO"),
    "white space": ("  one \n <b> two </b>", "  ONE \n <b> TWO </b>"),
    "plain text": ("one < two > three & four", "ONE &lt; TWO &gt; THREE &amp; FOUR"),
    "numbers": ("<td>12 %</td>", "<td>12 %</td>"),
    "open tags": ("<p>one<p>two</b>", "<p>ONE<p>TWO</b>"),
    "doctype": ("<!DOCTYPE html><p>one", "<!DOCTYPE html><p>ONE"),
}


@pytest.mark.parametrize("case", CASES)
def test_texts_are_replaced_and_tags_kept(case: str) -> None:
    given_html, expected = CASES[case]
    found = capitals(given_html)
    assert found.startswith(expected) if case == "comments" else found == expected


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


PARTS = [
    "<",
    ">",
    "&lt;",
    "&#60;",
    "&amp;",
    '"',
    "'",
    "=",
    "/",
    "!",
    "--",
    "script",
    "b",
    "onclick",
    " ",
    "x",
    "\n",
    "]]>",
    "<!",
]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join), st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
def test_no_tag_or_handler_appears_that_was_not_there(text: str, translation: str) -> None:
    page = parse_html(text)
    found = Elements(page.join([translation] * len(page.texts)))
    before = Elements(text)
    assert set(found.tags) <= set(before.tags) and len(found.tags) <= len(before.tags)
    assert found.handlers == []
