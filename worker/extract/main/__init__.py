"""The main text of a page, without menus, adverts and what else stands around it.

A tree is read as blocks, texts between the ends of elements that end text (``blocks.c``). Each has
some 250 features (``features.c``), of which boosted trees make a probability (``trees.c``), and
those blocks are chosen for which the expected F measure over words is highest (``choice.c``);
``document.c`` writes them down. Of a page that shows next to nothing the data that it carries are
read the same way (``embedded.py``). What was learnt, from which pages and by which command, stands
in ``MODEL.md``.

All of it is in C. In Python a prototype took 76 ms a page, longer than the slowest of other
libraries, and would have to be written twice; so there is no main text where nothing was compiled.
"""

from greencrawl.worker.extract.main.text import (
    NO_MAIN_TEXT,
    Judged,
    available,
    comments_text,
    data_instead,
    judged,
    main_text,
    markdown,
    remark,
    spans_of,
)

__all__ = [
    "NO_MAIN_TEXT",
    "Judged",
    "available",
    "comments_text",
    "data_instead",
    "judged",
    "main_text",
    "markdown",
    "remark",
    "spans_of",
]
