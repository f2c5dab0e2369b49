"""The main text of a page, without menus, adverts and other text around it.

A tree is read as blocks: texts between the ends of elements that end a text (``blocks.c``). Each
block has some 250 features (``features.c``), from which boosted trees make a probability
(``trees.c``). The set of blocks with the highest expected F measure over words is chosen
(``choice.c``); ``document.c`` writes them down. If a page shows almost nothing, the data that it
carries are read in the same way (``embedded.py``). ``MODEL.md`` says what was learnt, from which
pages and by which command.

All of this is in C. A prototype in Python took 76 ms for a page, longer than the slowest other
library, and we would have the code twice. So there is no main text if nothing was compiled.
"""

from greencrawl.worker.extract.main.text import (
    NO_HTML,
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
    "NO_HTML",
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
