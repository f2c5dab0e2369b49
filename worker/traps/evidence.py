"""What one page showed, and what is known of pages of the same text."""

from __future__ import annotations

from msgspec import Struct


class Same(Struct, gc=False):
    """Pages of the same text: how many, a bit for each depth of their folders, the shape of the
    first as a number, whether there are others, and whether one of them has a query.

    Documentation has the same text at many paths; what is answered to a query as well is a form, or
    says that something is missing.
    """

    pages: int
    depths: int
    shape: int
    several: bool = False
    asked: bool = False

    @property
    def wide(self) -> bool:
        """Whether it is no page's own, wherever it stands."""
        return self.several and self.asked


class Evidence(Struct, gc=False):
    """What one page showed. The text is ``new`` (1: much of it, 0: none, between: little).

    The others count links to URLs that were not met before: to its own shape, to such as yield, to
    such as lead to these, to shapes of which too little is known, and to poor ones. ``copy`` says
    that it is one by its own word, ``equal`` that its like was seen before, often; ``deep``: in
    folders of many depths, ``wide``: how many pages of several shapes had its text. ``query`` says
    that its URL has one, ``numbered`` that it ends in a number or an id. ``data`` is what programs
    read, ``moved`` leads to what was met. ``leading`` is how surely such a shape leads on, to 1.
    ``inner`` says that its URL was found on a page of its own shape.
    """

    new: float
    own: int = 0
    good: int = 0
    leading: float = 0.0
    unknown: int = 0
    poor: int = 0
    copy: bool = False
    equal: bool = False
    deep: bool = False
    wide: int = 0
    query: bool = False
    data: bool = False
    moved: bool = False
    numbered: bool = False
    inner: bool = False
