"""Chosen blocks are written as a document; here a model chooses everything."""

from __future__ import annotations

from types import ModuleType

import pytest

from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train.packed import packed


@pytest.fixture(scope="module")
def module() -> ModuleType:
    if compiled is None:
        pytest.skip("nothing was compiled")
    return compiled


def written(module: ModuleType, body: str, markdown: bool = False) -> str:
    model = module.main_model(packed([], module.main_features()[1], bias=9))
    root, _ = tree_of(body.encode(), "text/html; charset=utf-8")
    resolve = (lambda reference: f"http://x/{reference}") if markdown else None
    return str(module.main_text(root, model, resolve, False))


TABLE = "<table><tr><th>a<th>b<tr><td>1 | 2<td><p>3<p>4</table>"

CASES = {
    "paragraphs": ("<p>One  two\n<p>Three", "One two\n\nThree", "One two\n\nThree"),
    "headings": ("<h1>A</h1><h3><b>B</b></h3>", "A\n\nB", "# A\n\n### **B**"),
    "a line break": ("one<br>two <br/> <br>three", "one\ntwo\n\nthree", "one  \ntwo\n\nthree"),
    "a list": ("<ul><li>a<li>b<ol><li>c</ol></ul>", "a\nb\nc", "- a\n- b\n  1. c"),
    "an item of two": ("<ul><li><p>a<p>b<li>c</ul>", "a\nb\nc", "- a\n\n  b\n- c"),
    "a quote": ("<blockquote>a<br>b</blockquote>", "a\nb", "> a  \n> b"),
    "code": ("<pre>a\n  *b*</pre>", "a\n  *b*", "```\na\n  *b*\n```"),
    "a table": (TABLE, "a\tb\n1 | 2\t3 4", "| a | b |\n| --- | --- |\n| 1 \\| 2 | 3 4 |"),
    "a table of layout": ("<table><tr><td><p>a<p>b</table>", "a\n\nb", "a\n\nb"),
    "a definition": ("<dl><dt>a<dd>b</dl>", "a\nb", "a\n\nb"),
    "marks": (
        "a <b>b <i>c</i></b> <code>*d*</code> <em> </em>e",
        "a b c *d* e",
        "a **b *c*** `*d*` e",
    ),
    "spaces within marks": ("a<b> b </b>c", "a b c", "a **b** c"),
    "a link": ("<a href='p(1)?q'>a</a>.", "a.", "[a](http://x/p%281%29?q)."),
    "a link around blocks": (
        "<a href=u><h2>a</h2><p>b</a>",
        "a\n\nb",
        "## [a](http://x/u)\n\n[b](http://x/u)",
    ),
    "signs that mean something": (
        "<p># a_b [c] <p>- d",
        "# a_b [c]\n\n- d",
        "\\# a\\_b \\[c\\]\n\n\\- d",
    ),
    "what is not shown": (
        "<script>a</script><style>b</style><select><option>c</select>d", "d", "d"
    ),
    "a text that comes twice": (
        "<p>The same words again<p>x<p>The same words again",
        "The same words again\n\nx",
        "The same words again\n\nx",
    ),
    "every script": ("<p>日本語。<p>ไทย　ก", "日本語。\n\nไทย ก", "日本語。\n\nไทย ก"),
    "nothing": ("<body>", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_chosen_blocks_are_written_as_text_and_markdown(module: ModuleType, case: str) -> None:
    body, text, markdown = CASES[case]
    assert written(module, body) == text
    assert written(module, body, markdown=True) == markdown


def test_an_error_of_the_url_resolver_is_passed_on(module: ModuleType) -> None:
    model = module.main_model(packed([], module.main_features()[1], bias=9))
    root, _ = tree_of(b"<a href=x>a</a>")

    def broken(reference: str) -> str:
        raise LookupError(reference)

    with pytest.raises(LookupError, match="x"):
        module.main_text(root, model, broken, False)
