"""Code of our own beside libraries for the same standard: ``-m bench.libraries.compare [--short]``.

Three parts, each measured alternately in one process, as CPU time of it:

* WARC: pages of PostgreSQL's manual are written as response and request, or as revisit and request,
  with a sync after every 64 pages, and their bodies are read by offset. Then the manual is crawled
  into WARC files, twice at once, with our records and with those of warcio.
* Digest: an Authorization header, by ours and by requests.
* Cookies: the Cookie header of a request, and a Set-Cookie header, by ours and by http.cookiejar,
  with 1, 50 and 3,000 cookies; and how each reads Set-Cookie headers of a hostile server.

``--short`` takes a third of the rounds, and one of six crawls. Full runs take five minutes, short
ones one.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from bench import document
from bench.libraries import logins, records
from bench.peers.crawls import served
from bench.peers.trees import running, side_by_side
from bench.rig.options import parser
from bench.rig.record import Cell, Record, spread
from bench.rig.sites import DOCUMENTATION, install_site
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.records import Fetched, StoredPage
from greencrawl.store.warc.records import Origin
from greencrawl.worker.auth.base import Cookie
from greencrawl.worker.auth.cookies import Jar
from greencrawl.worker.auth.kinds import digest
from tests.support.checkout import ROOT

NAME = "libraries"
PAGES = 600
BATCH = 64
"""Pages between two syncs."""
ROUNDS, SHORT_ROUNDS, CRAWL_ROUNDS = 9, 3, 6
HOSTS = 3
REPLACEMENT = "warcio, as ours would keep it"
HOOKS = [{"hook": f"bench.libraries.with_{which}"} for which in ("ours", "warcio")]
CALLS = range(3000)
COOKIES = (1, 50, 3000)
HOSTILE_BYTES = 65_536

Figures = dict[str, list[float]]
"""µs of each round, by what was measured."""


def micros(work: Callable[[], object], times: int) -> float:
    """Return the µs of CPU of ``work``, divided by ``times``: its number of calls or parts."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / times * 1e6


def pages() -> list[StoredPage]:
    """Return pages of the manual, with the headers that a server sends with them."""
    found = []
    for number, path in enumerate(sorted(install_site().glob("*.html"))[:PAGES]):
        body = path.read_bytes()
        headers = {
            "content-type": "text/html; charset=utf-8",
            "content-length": str(len(body)),
            "date": "Thu, 01 Jan 2026 00:00:00 GMT",
            "etag": f'"{number:x}"',
            "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            "server": "nginx/1.22.1",
        }
        page = StoredPage(
            crawl=1,
            fingerprint=number,
            url=f"https://manual.example/{path.name}",
            status=200,
            headers=headers,
            fetched_ms=1_772_366_400_000 + number,
            body=body,
            digest=hashlib.sha256(body).digest()[:16],
        )
        found.append(page)
    return found


def write(
    way: records.Way, path: Path, given: Sequence[StoredPage], origin: Origin | None
) -> list[tuple[int, int]]:
    """Write the records of all pages; return offset and length of each page's first record."""
    places = []
    with path.open("wb") as file:
        for number, page in enumerate(given, start=1):
            begin = file.tell()
            way.write(file, page, origin)
            places.append((begin, file.tell() - begin))
            if number % BATCH == 0:
                file.flush()
                os.fdatasync(file.fileno())
    return places


def warc(record: Record, rounds: int, folder: Path) -> None:
    """Measure the ways to write and to read."""
    given = pages()
    origin = Origin("<urn:uuid:0>", "https://manual.example/", "2026-01-01T00:00:00.000Z")
    spent: dict[str, Figures] = {name: {} for name in records.WAYS}
    size = {}
    firsts = folder / "firsts.warc.gz"
    with firsts.open("wb") as file:  # each way reads these records, whose places are known
        ends = [0]
        for page in given:
            file.write(records.ours.member(records.ours.response(page)))
            ends.append(file.tell())
    places = [(begin, end - begin) for begin, end in pairwise(ends)]
    for number in range(rounds):
        for name in list(records.WAYS)[:: -1 if number % 2 else 1]:
            way, path = records.WAYS[name], folder / "x.warc.gz"
            found = spent[name]

            def one(what: str, work: Callable[[], object], found: Figures = found) -> None:
                found.setdefault(what, []).append(micros(work, len(given)))

            one("response", lambda way=way, path=path: write(way, path, given, None))
            size[name] = path.stat().st_size / len(given)
            one("revisit", lambda way=way, path=path: write(way, path, given, origin))
            one("read", lambda way=way: [way.read(firsts, *place) for place in places])
    rows: list[list[Cell]] = [
        [name, records.WAYS[name].level, *map(spread, found.values()), round(size[name])]
        for name, found in spent.items()
    ]
    record.table(
        "WARC: CPU µs a page",
        ["records by", "level", "response, request", "revisit, request", "a body read", "bytes"],
        rows,
    )
    record.runs("WARC", spent)


def crawls(record: Record, rounds: int, folder: Path) -> None:
    """Measure two crawls at a time of the manual into WARC files: one with our records, one with
    those of warcio."""
    pairs = []
    with served(DOCUMENTATION, 2 * HOSTS, folder / "site") as on:
        for number in range(rounds):
            archives = [folder / f"crawl{number}" / name for name in ("ours", "warcio")]
            starts = [
                partial(running, ROOT, place, on, hooks="*", bodies=f"warc:{place / 'archive'}")
                for place in archives
            ]
            pairs.append(side_by_side(on, starts, HOOKS, number))
            assert [made_by_warcio(place / "archive") for place in archives] == [False, True]
    more = [theirs.all_cpu / ours.all_cpu * 100 - 100 for ours, theirs in pairs]
    rows: list[list[Cell]] = [
        [name, spread([pair[at].all_cpu * 1000 for pair in pairs])]
        for at, name in enumerate(("ours", REPLACEMENT))
    ]
    record.table(
        "WARC: CPU µs a page of a whole crawl, all processes",
        ["records by", "µs"],
        [*rows, ["more with warcio, %", spread(more)]],
    )
    record.figure("warc_more_percent", statistics.median(more))


def made_by_warcio(archive: Path) -> bool:
    """Return whether the answers in these files are warcio's: it writes a type with a blank."""
    with next(archive.glob("*.warc.gz*")).open("rb") as file:
        for one in records.ArchiveIterator(file):
            if one.rec_type == "response":
                return " " in one.rec_headers.get_header("Content-Type")
    raise ValueError(f"no answer in {archive}")


def digests(record: Record, rounds: int) -> None:
    """Measure an Authorization header, and show the targets that requests changes."""
    header = 'Digest realm="r", qop="auth", algorithm={}, nonce="7ypf/xlj9XXwfDPEoM4", opaque="x"'
    makers = {"ours": digest.answer, "requests": logins.answer}
    rows: list[list[Cell]] = []
    for algorithm in ("MD5", "SHA-256", "SHA-512-256", "SHA-256-sess"):
        spent: Figures = {name: [] for name in makers}
        for _ in range(rounds):
            for name, make in makers.items():
                challenge = digest.strongest(header.format(algorithm))
                assert challenge is not None
                asked = partial(make, challenge, "Mufasa", "Circle of Life", "GET", "/dir/a?b=c")
                if asked():
                    spent[name].append(
                        micros(lambda asked=asked: [asked() for _ in CALLS], len(CALLS))
                    )
        rows.append([algorithm, *(spread(one) if one else "not known" for one in spent.values())])
    record.table("Digest: CPU µs a request", ["algorithm", *makers], rows)
    shown: list[list[Cell]] = []
    for target in ("/a/b.html?c=d", "/a;b=c", "/a?", "//a/b"):
        challenge = digest.strongest(header.format("MD5"))
        assert challenge is not None
        hashed = [make(challenge, "u", "p", "GET", target) for make in makers.values()]
        cells = [target, *(one.partition(' uri="')[2].partition('"')[0] for one in hashed)]
        shown.append([f"`{cell}`" for cell in cells])
    record.table("Digest: the target that is hashed", ["requested", *makers], shown)


def hostile(size: int = HOSTILE_BYTES) -> dict[str, str]:
    """Return Set-Cookie headers of about this size, by what is in them."""
    return {
        "blanks in a date": "s=1; Expires=1" + " " * size + "Jan",
        "commas in a date": "s=1; Expires=" + ", " * (size // 2),
        "digits of Max-Age": "s=1; Max-Age=" + "9" * size,
        "semicolons": "s=1" + ";" * size,
        "attributes": "s=1; " + "a=b; " * (size // 5),
        "a value": "s=" + "v" * size,
    }


def cookies(record: Record, rounds: int) -> None:
    """Measure Cookie and Set-Cookie headers, with few cookies and with many."""
    origins = Origins(["site.example"])
    jars: dict[str, Callable[[list[Cookie], Origins], Jar | logins.LibraryJar]] = {
        "ours": Jar,
        "http.cookiejar": logins.LibraryJar,
    }
    url = "https://site.example/dir/page.html?a=b"
    later = "Path=/; Expires=Fri, 01 Jan 2100 00:00:00 GMT; HttpOnly"
    rows: list[list[Cell]] = []
    for count in COOKIES:
        held = [
            Cookie(f"name{n}", "v" * 24, "site.example", path="/dir" if n % 2 else "/")
            for n in range(count)
        ]
        answers = [answer(url, f"name0={n}; {later}") for n in range(max(20, 2000 // count))]
        spent: dict[str, Figures] = {"a request": {}, "a Set-Cookie": {}}
        for _ in range(rounds):
            for name, kind in jars.items():
                jar = kind(held, origins)
                asked = micros(
                    lambda jar=jar, answers=answers: [jar.header(url) for _ in answers],
                    len(answers),
                )
                taken = micros(
                    lambda jar=jar, answers=answers: [jar.take(one) for one in answers],
                    len(answers),
                )
                spent["a request"].setdefault(name, []).append(asked)
                spent["a Set-Cookie"].setdefault(name, []).append(taken)
        rows += [[str(count), what, *map(spread, one.values())] for what, one in spent.items()]
    for what, text in hostile().items():
        found: Figures = {name: [] for name in jars}
        for _ in range(rounds):
            for name, kind in jars.items():
                jar = kind([Cookie("s", "0", "site.example")], origins)
                found[name].append(micros(partial(jar.take, answer(url, text)), 1))
        rows.append(["1", f"a Set-Cookie of 64 KB: {what}", *map(spread, found.values())])
    record.table("Cookies: CPU µs", ["cookies held", "of", *jars], rows)


def answer(url: str, cookie: str) -> Fetched:
    """Return an answer that sets a cookie."""
    return Fetched(url=url, status=200, headers={}, body=b"", cookies=(cookie,))


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all required figures were reached."""
    options = parser("bench.libraries.compare", __doc__, "a third of the rounds").parse_args(
        arguments
    )
    rounds = SHORT_ROUNDS if options.short else ROUNDS
    title = "own code beside libraries for the same standard"
    record = Record(NAME, title, options.short, packages=("warcio", "requests"))
    record.note(
        f"{PAGES} pages of the manual, a sync after every {BATCH}. What would be around warcio,"
        " requests and http.cookiejar is in `bench/libraries/`; decision"
        " [58](decisions/0058-libraries-for-standards.md) says what follows."
    )
    with tempfile.TemporaryDirectory(prefix="libraries-") as name:
        folder = Path(name)
        warc(record, rounds, folder)
        crawls(record, 1 if options.short else CRAWL_ROUNDS, folder)
    digests(record, rounds)
    cookies(record, rounds)
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
