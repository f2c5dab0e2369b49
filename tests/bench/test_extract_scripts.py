"""Pages in other scripts than they were written in."""

from __future__ import annotations

import pytest

from bench.extract import scripts
from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train.samples import Sample
from tests.worker.extract.main.test_main_text import ARTICLE, STORY


def test_letters_are_replaced_one_by_one_and_spaces_dropped_for_scripts_without_them() -> None:
    assert scripts.SCRIPTS["Cyrillic"].written("Ab, 1 c.") == "аб, 1 в."
    assert scripts.SCRIPTS["Thai"].written("a b, 1 c") == "กข, 1 ฃ"
    assert scripts.SCRIPTS["Han"].written("a b, c. a\x00") == "一严、乊。一"


def test_rewriting_a_tree_changes_all_text_except_its_code() -> None:
    root, _ = tree_of(b"<p>ab <b>c</b> d<script>e</script> f")
    assert root is not None
    scripts.rewrite(root, scripts.SCRIPTS["Cyrillic"])
    assert "".join(root.itertext()) == "аб в гe е"


def test_texts_are_compared_by_pairs_of_characters_without_white_space() -> None:
    assert scripts.score("a b c", "abc") == 1
    assert scripts.score("abcd", "abxy") == pytest.approx(1 / 3)
    assert scripts.score("", "ab") == scripts.score("a", "b") == 0


@pytest.mark.skipif(compiled is None, reason="nothing was compiled")
def test_a_page_gets_a_score_in_each_writing_system() -> None:
    assert compiled is not None
    text = "\n".join(("When the harbour froze", *STORY))
    sample = Sample("k", "article", "x", "http://x/", ARTICLE.encode(), text, (), (), "", "", "")
    found = scripts.scores([sample], compiled.main_model(MODEL.read_bytes()))
    assert found.keys() == {scripts.LATIN, *scripts.SCRIPTS}
    assert all(values[0] > 0.9 for values in found.values()), found
