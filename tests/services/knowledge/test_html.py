"""A page becomes what its reader sees: headings, paragraphs, lists, tables; nothing that is hidden."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.knowledge.parsing import LIMIT, Unreadable, read
from services.knowledge.parsing.elements import DEPTH


def shown(markup: str) -> list[tuple[str, str]]:
    return [(passage.heading, passage.content) for passage in read("x.html", markup.encode())]


def shown_body(markup: str) -> str:
    [(_, content)] = shown(f"<body>{markup}")
    return content


def test_cuts_at_headings_and_names_the_path():
    text = "Text. " * 50
    page = f"<title>T</title><h1>A <b>x</b></h1><p>{text}<div><h2>B</h2>{text}</div><h1>C</h1>{text}"
    assert [(heading, content.split("\n")[0]) for heading, content in shown(page)] == [
        ("A x", "# A x"), ("A x > B", "## B"), ("C", "# C"),
    ]


def test_takes_the_title_for_the_first_heading_where_there_is_none():
    assert shown("<title> My\n page </title><p>Text<h2>B</h2>more") == [
        ("My page", "# My page\n\nText"), ("My page > B", "## B\n\nmore"),
    ]


@pytest.mark.parametrize("hidden", [
    "<script>SECRET</script>", "<style>SECRET</style>", "<template><p>SECRET</template>", "<!-- SECRET -->",
    "<noscript>SECRET</noscript>", "<NOSCRIPT ><iframe></iframe>SECRET</noscript>", "<p hidden>SECRET</p>",
    '<p style="color:red; Display : NONE">SECRET</p>',
    "<p style='visibility:hidden'>SECRET</p>", "<div aria-hidden=true><p>SECRET</div>", "<iframe>SECRET</iframe>",
    "<dialog>SECRET</dialog>", "<object>SECRET</object>", "<?php SECRET ?>", "<![CDATA[SECRET]]>",
    "<input type=hidden value=SECRET>", "<p title=SECRET onclick='SECRET()'></p>", "<svg><script>SECRET</script></svg>",
    "<svg><title>SECRET</title></svg>", "<h2 hidden>SECRET</h2>", "<table><tr hidden><td>SECRET<td>SECRET</table>",
    "<pre hidden>SECRET</pre>", "<a href='javascript:SECRET'></a>", "<script>SECRET", "<!-- SECRET", "<style>SECRET",
])
def test_shows_nothing_hidden_and_all_that_stands_beside_it(hidden):
    content = shown_body(f"<p>before</p>{hidden}")
    assert "before" in content and "SECRET" not in content
    if not re.search(r"^<(!--|script|style)[^<]*$|<!-- SECRET$", hidden):
        assert "after" in shown_body(f"<p>before</p>{hidden} after")


@pytest.mark.parametrize("style", [
    "display:none", "display : none !important", "DISPLAY:NONE", "color: red; display: none; margin: 0",
    "display:\tnone\n", ";;display:none", "color: red; /* why */ display/**/:/* not */none", "visibility: hidden",
    "visibility:collapse", "Content-Visibility: hidden", "display: block; display: none", "display: none /* end",
    "display: none ! important; display: block", "background: url(a;b); display: none",
    "content: 'it\\'s;'; display: none",
])
def test_a_style_that_hides_an_element_hides_it(style):
    assert shown_body(f'<p>before</p><div style="{style}">SECRET</div>') == "before"


@pytest.mark.parametrize("style", [
    "-webkit-backface-visibility: hidden", "backface-visibility:hidden", "overflow: hidden", "overflow-x:hidden",
    "--my-display: none", "--visibility:hidden", "content-visibility: auto", "visibility: visible", "display:block",
    "list-style-display: none", "display: none; display: block", "display:none;display:flex!important",
    "/* display: none */", "/* visibility: hidden; */ color: red", "content: 'a; display: none; b'",
    "background: url(data:image/svg+xml;display:none)", "font-family: display, none", "display: nonesuch", "display",
    "animation: display:none", "border-style: none", "dis/**/play: none",
    "transition: visibility 0s; pointer-events: none",
])
def test_a_style_that_hides_nothing_loses_no_word(style):
    assert shown_body(f'<p>before</p><div style="{style}">after</div>') == "before\n\nafter"


@pytest.mark.parametrize("style", ["(", "'", '\\"', "/*", "/**/", ";:", "((", "('", "display:none", "\\\\"])
def test_reads_a_style_however_long_in_time_that_is_linear(style):
    begun = time.process_time()
    read("x.html", f"<p style='{style.replace(chr(39), '&#39;') * 300_000}'>a</p>b".encode())
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(("markup", "content"), [
    ("<p>one\n  two<br>three</p>four<div>five</div>six", "one two\nthree\n\nfour\n\nfive\n\nsix"),
    ("<ul><li>a<li><p>b<p>c<ol start=9><li>d<li>e</ol><li>f</ul>", "- a\n- b\n  c\n  9. d\n  10. e\n- f"),
    ("<dl><dt>Term<dd>what it means</dl>", "Term\n: what it means"),
    ("<blockquote>q<p>r</blockquote>s", "> q\n> r\n\ns"),
    ("<pre>def f():\n    <b>pass</b><br>    #</pre>", "```\ndef f():\n    pass\n    #\n```"),
    ("<pre>```\nx</pre>", "````\n```\nx\n````"),
    ("call <code>f( )</code> now", "call `f( )` now"),
    ("<a href=https://x.example/y>text</a> <a href='/rel'>rel</a> <a href='javascript:x()'>js</a>",
     "[text](https://x.example/y) rel js"),
    ("<a href=https://x.example>https://x.example</a>", "https://x.example"),
    ("<a href=https://x.example><p>a card</p></a>", "a card"),
    ("<img alt='A cat' src='data:image/png;base64,AAAA'>", "A cat"),
    ("Donau&shy;dampf&nbsp;schiff", "Donaudampf schiff"),
    ("<details><summary>More</summary>text</details>", "More\n\ntext"),
    ("a&lt;script&gt;b", "a<script>b"),
    ("<b>never <i>closed <p>at all", "never closed\n\nat all"),
])
def test_writes_what_stands_in_a_page(markup, content):
    assert shown_body(markup) == content


def test_keeps_a_table_readable():
    rows = "<thead><tr><th>Name<th>Price</thead><tr><td>A|B<td><p>1 €</p><p>net</p><tr><td colspan=2>free"
    assert shown_body(f"<table><caption>Prices</caption>{rows}</table>") == (
        "Prices\n\n| Name | Price |\n| --- | --- |\n| A\\|B | 1 € net |\n| free | free |"
    )


def test_reads_a_table_that_only_lays_out_the_page_as_its_parts():
    page = "<table><tr><td><h2>News</h2>text<td><table><tr><td>a<td>b</table></table>"
    assert shown(page) == [("News", "## News\n\ntext\n\n| a | b |\n| --- | --- |")]


def test_takes_a_word_for_no_heading_and_no_fence():
    assert shown("<p># no heading</p><p>```</p><h2>B</h2>text") == [("", "# no heading\n\n```"), ("B", "## B\n\ntext")]


@pytest.mark.parametrize("tag", ["div", "b", "ul><li", "table><tr><td", "blockquote", "font"])
def test_refuses_what_is_nested_too_deep_and_reads_what_is_not(tag):
    assert "deep" in shown(f"<{tag}>" * (DEPTH // 5) + "deep")[0][1]
    with pytest.raises(Unreadable, match="elements in one another"):
        shown(f"<{tag}>" * 100_000 + "deep")


def test_cuts_a_line_of_five_megabytes():
    passages = read("x.html", b"<p>" + b"A sentence of words. " * 250_000)
    assert sum(passage.content.count("sentence") for passage in passages) == 250_000
    assert all(len(passage.content) <= LIMIT for passage in passages)


VISIBLE = st.sampled_from([
    "div", "p", "span", "b", "a href=https://x.example", "ul><li", "ol><li", "blockquote", "pre", "code", "h1", "h3",
    "table><tr><td", "table><caption>c</caption><tr><td>c</td><th", "dl><dt>t<dd", "section", "custom-tag", "details",
])
HIDDEN = st.sampled_from(["script", "style", "template", "noscript", "div hidden", "b style='display:none'"])
TREES = st.recursive(
    st.just(("text", ())), lambda inner: st.tuples(VISIBLE | HIDDEN.map("!".__add__), st.lists(inner, max_size=4)),
    max_leaves=25,
)


def written(tree, words: list[str], *, hidden: bool = False) -> str:
    """The markup of a tree, each text a new word that says whether it may be seen."""
    kind, inner = tree
    if kind == "text":
        words.append(f"{'hid' if hidden else 'seen'}{len(words)}w")
        return f" {words[-1]} "
    tag, hidden = kind.lstrip("!"), hidden or kind.startswith("!")
    content = "".join(written(part, words, hidden=hidden) for part in inner)
    if tag in ("script", "style", "noscript"):  # there, tags are text
        content = re.sub("<[^>]*>", "", content)
    ends = "".join(f"</{name}>" for name in reversed(re.findall(r"(?:^|<)([\w-]+)", tag)))
    return f"<{tag}>{content}{ends}"


@given(st.lists(TREES, max_size=5))
def test_shows_every_word_once_and_no_hidden_one(trees):
    words: list[str] = []
    markup = "<html><body>" + "".join(written(tree, words) for tree in trees)
    try:
        content = "\n".join(passage.content for passage in read("x.html", markup.encode()))
    except Unreadable:
        content = ""
    found = re.findall(r"(?:seen|hid)\d+w", content)
    assert found == [word for word in words if word.startswith("seen")]
