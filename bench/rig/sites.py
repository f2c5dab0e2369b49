"""The two sites that are crawled: synthetic pages of 20 KB, and Debian's ``postgresql-doc``.

Both have a part that robots.txt forbids and that pages link to, so that a crawler shows whether it
obeys.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.sites import direct, folder_site
from tests.support.walk import walk

PACKAGE = "postgresql-doc"
"""It depends on the package of one release, such as ``postgresql-doc-15``, which has the pages."""
DOCS = Path("/usr/share/doc")
PAGE_BYTES = 20_000
LINKS = 40


@dataclass(frozen=True)
class Site:
    """The content of a host, from ``start`` on; ``forbidden`` begins the paths that robots.txt
    disallows; ``pages`` is the number of synthetic pages.

    ``what`` describes it to a reader.
    """

    name: str
    what: str
    start: str
    forbidden: str
    pages: int = 0

    def write(self, folder: Path) -> int:
        """Write the site to ``folder``; return how many pages can be reached and may be fetched.

        Raises SystemExit if the package of the documentation is missing and cannot be installed.
        """
        if self.pages:
            write_pages(folder, self.pages)
            return self.pages
        shutil.copytree(install_site(), folder)
        _write_robots(folder, self.forbidden)
        return len(walk([f"http://h{self.start}"], direct(folder_site(folder)), agent="walk").pages)


def manual(docs: Path = DOCS) -> Path | None:
    """Return the folder of pages of the newest release installed, None if there is none."""
    found = {
        int(release): pages.parent
        for pages in docs.glob(f"{PACKAGE}-*/html/index.html")
        if (release := pages.parts[-3].removeprefix(f"{PACKAGE}-")).isdecimal()
    }
    return found[max(found)] if found else None


def install_site() -> Path:
    """Install the package if it is missing; return the folder of its pages.

    Raises SystemExit saying what to do without root, and if the package has no pages.
    """
    found = manual()
    if found is None:
        if os.geteuid() != 0:
            raise SystemExit(f"{PACKAGE} is missing: as root, apt-get install {PACKAGE}")
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", PACKAGE], check=True)
        found = manual()
    if found is None:
        raise SystemExit(f"{PACKAGE} is installed, but has no {DOCS}/{PACKAGE}-*/html/index.html")
    return found


def _release() -> str:
    """Return the name of the package that has the pages, without its release if none is there."""
    found = manual()
    return found.parent.name if found else PACKAGE


SYNTHETIC = Site("synthetic", "pages of 20 KB with 40 links", "/0.html", "/private/", 1500)
DOCUMENTATION = Site("documentation", f"real pages ({_release()})", "/index.html", "/release-")


def write_pages(folder: Path, pages: int, seed: int = 1) -> None:
    """Write ``pages`` files of about 20 KB with 40 links each, all reachable from ``/0.html``.

    A page links to its two children in a binary tree, to a forbidden page, and to others at random;
    links are in paragraphs of English-like words. The same ``seed`` gives the same bytes.
    """
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(2000)]
    folder.mkdir(parents=True, exist_ok=True)
    _write_robots(folder, SYNTHETIC.forbidden)
    private = folder / "private"
    private.mkdir(exist_ok=True)
    for i in range(pages):
        targets = [f"private/{i}", *(str(j) for j in (2 * i + 1, 2 * i + 2) if j < pages)]
        targets += map(str, chance.sample(range(pages), LINKS - len(targets)))
        (folder / f"{i}.html").write_text(_page(i, targets, words, chance))
        (private / f"{i}.html").write_text("<title>Not for crawlers</title>")


def _write_robots(folder: Path, forbidden: str) -> None:
    (folder / "robots.txt").write_text(f"User-agent: *\nDisallow: {forbidden}\n")


def _page(i: int, targets: list[str], words: list[str], chance: random.Random) -> str:
    share = (PAGE_BYTES - 200) // len(targets) - 48
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page {i}</title>'
        "</head><body><h1>Synthetic</h1>"
    ]
    for target in targets:
        text = " ".join(chance.choices(words, k=share // 7))
        parts.append(f'<p>{text} <a href="/{target}.html">{chance.choice(words)}</a></p>\n')
    return "".join(parts) + "</body></html>"
