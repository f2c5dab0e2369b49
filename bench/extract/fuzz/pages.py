"""Pages to break, and the ways in which they are broken."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 60_000
"""The greatest size of a page that is to be broken."""

_WORDS = "The harbour froze in January, and people walked. 港は一月に凍った。 Who had 1,234 skates!"
_OWN = f"""<html><head><title>When the harbour froze - The Herald</title>
<meta property=og:type content=article><script type="application/ld+json">
{{"@type":"Article","articleBody":"{_WORDS}","text":"a\\u00e9\\n"}}</script></head>
<body class='home page'><nav><ul><li><a href=/1>One</a><li><a href=../2?x=y>Two</a></ul></nav>
<main><article class='post entry'><h1>When the harbour froze</h1><p>{_WORDS}<p><b>By</b> <em>A</em>
<time datetime=2026-01-02>2 January 2026</time><blockquote><p>{_WORDS}</blockquote><pre>a
  b</pre><table><tr><th>a<th>b<tr><td>1<td>2<tr><td>{_WORDS}<td>4</table>
<ol><li>x<ul><li>y</ul></ol><p>{_WORDS}<br><br>{_WORDS}</article>
<section id=comments><p>{_WORDS}</section></main><footer>© 2026</footer>"""
OWN = [(_OWN + f"<div>{_WORDS * n}</div>" * n).encode() for n in range(6)]
"""Pages to break if no folder of pages is given."""

_PIECES = """
<p> </p> <div_class='aB_comment-list'> </div> <ul><li> </ul> <table><tr><td> </table> <pre> </a> <b>
<a_href=x> <a_href='//h:80/%zz?a=b#c'> </b> <em><code> <br><br> <h1> <noscript> <title> <head> <svg>
</body></html> <x-y> <blockquote> <base_href=/b/> <img_alt=a> <link_rel=canonical_href=/c>
<meta_name=robots_content=noindex> <script_type='application/ld+json'>{"articleBody":"a_b_c\\
\\u00e9\\uD83D "text":" </script> 日 。 2026
word,_word._ <iframe_srcdoc='<a_href=x>'> &#0; &nbsp;
"""
PIECES = [piece.replace("_", " ").encode() for piece in _PIECES.split()]
PIECES += [b" ", b"\n", b"\xc2\xa0", b"\xff\xfe", b"\xc2", b"\x00"]
"""Bytes that are inserted."""


def read(folders: list[Path]) -> list[bytes]:
    """Return the pages of folders (HTML, also in gzip), cut off; our own pages if there are
    none."""
    found = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*.htm*"))
    ]
    return [page[:MOST_BYTES] for page in found] or OWN


def broken(pages: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield pages without end, each with up to forty pieces inserted, removed, repeated or
    changed."""
    chance = random.Random(seed)
    while True:
        page = bytearray(chance.choice(pages))
        for _ in range(chance.randint(1, 40)):
            at, what = chance.randrange(len(page) + 1), chance.random()
            if what < 0.4:
                page[at:at] = chance.choice(PIECES) * chance.choice((1, 1, 1, 3, 50))
            elif what < 0.6:
                del page[at : at + chance.randint(1, 2000)]
            elif what < 0.8:
                other = chance.choice(pages)
                start = chance.randrange(len(other) + 1)
                page[at:at] = other[start : start + chance.randint(1, 3000)]
            else:
                page[at : at + 1] = bytes([chance.randrange(256)])
        yield bytes(page[:MOST_BYTES])
