"""``python -m bench.extract.scripts FOLDER…``: is main text as good in every script as in Latin?

The letters of pages whose main text is marked as a whole are replaced, one by one, by those of
another script. If a script writes no spaces, or has its own commas and full stops, these are
changed, too. A text is scored by its pairs of characters, since words cannot be found without
spaces. Texts are made by cross-validation over sites, or with ``--packaged`` by the model of the
package.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

from lxml import etree

from bench.rig.record import Record
from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train.samples import Sample, read

LETTERS = ascii_lowercase + "äöüéèáíóúñçàêôâ"
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
UNREAD = ("script", "style", "meta")


class Script(NamedTuple):
    """How letters are replaced: by ``count`` characters, of which the first is ``first``, and each
    next one is ``step`` further.

    ``spaces``: whether words are separated by spaces; ``marks``: the script's own marks.
    """

    first: int
    count: int
    step: int = 1
    spaces: bool = True
    marks: bool = False

    def written(self, text: str) -> str:
        """Return a text in this script."""
        signs = {
            ord(one): chr(self.first + place * self.step % self.count)
            for place, letter in enumerate(LETTERS)
            for one in (letter, letter.upper())
        }
        text = NOT_XML.sub("", text).translate(signs)
        if not self.spaces:
            text = re.sub(r"(?<=[^\x00-\x7f]) +(?=[^\x00-\x7f])", "", text)
        return text.replace(". ", "。").replace(", ", "、") if self.marks else text


SCRIPTS = {
    "Han": Script(0x4E00, 2000, 37, spaces=False, marks=True),
    "kana": Script(0x3042, 80, 3, spaces=False, marks=True),
    "Hangul": Script(0xAC00, 2000, 53),
    "Cyrillic": Script(0x430, 32),
    "Arabic": Script(0x627, 32),
    "Devanagari": Script(0x905, 50),
    "Thai": Script(0xE01, 40, spaces=False),
}
LATIN = "Latin"


def score(found: str, truth: str) -> float:
    """Return F1 over pairs of characters, without white space; 0 if they have nothing in common."""
    one, other = _pairs(found), _pairs(truth)
    common = sum((one & other).values())
    return 2 * common / (sum(one.values()) + sum(other.values())) if common else 0.0


def _pairs(text: str) -> Counter[str]:
    text = "".join(text.split())
    return Counter(map("".join, pairwise(text)))


def rewrite(root: etree._Element, script: Script) -> None:
    """Rewrite all texts of a tree in another script."""
    for element in root.iter():
        if element.text and element.tag not in UNREAD:
            element.text = script.written(element.text)
        if element.tail:
            element.tail = script.written(element.tail)


def scores(samples: Sequence[Sample], model: object) -> dict[str, list[float]]:
    """Return the scores of pages, by script."""
    assert compiled is not None
    found: dict[str, list[float]] = {}
    for sample in samples:
        for name, script in {LATIN: None, **SCRIPTS}.items():
            root, truth = tree_of(sample.body)[0], sample.text or ""
            if root is not None and script is not None:
                rewrite(root, script)
                truth = script.written(truth)
            text = "" if root is None else compiled.main_text(root, model, None, False)
            found.setdefault(name, []).append(score(text, truth))
    return found


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 if a script is more than .03 worse than Latin."""
    parser = argparse.ArgumentParser(prog="python -m bench.extract.scripts", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--packaged", action="store_true", help="use the package's model")
    given = parser.parse_args(arguments)
    assert compiled is not None, "nothing was compiled"
    samples = [sample for folder in given.folders for sample in read(folder)]
    marked = [sample for sample in samples if sample.text is not None]
    record = Record("extract-scripts", "Main text in other scripts", False)
    every: dict[str, list[float]] = {}
    if given.packaged:
        every = scores(marked, compiled.main_model(MODEL.read_bytes()))
    else:
        from greencrawl.worker.extract.train import fit

        rows = fit.rows_of(samples)
        for model, places in fit.fold_models(rows, fit.Settings()):
            some = [samples[place] for place in places if samples[place].text is not None]
            for name, values in scores(some, model).items():
                every.setdefault(name, []).extend(values)
    means = {name: sum(values) / len(values) for name, values in every.items()}
    record.table(
        f"F1 over pairs of signs, mean of {len(marked)} pages", list(means),
        [[f"{mean:.3f}" for mean in means.values()]],
    )  # fmt: skip
    record.figure("least, less Latin", min(means.values()) - means[LATIN])
    record.finish()
    return 1 if min(means.values()) < means[LATIN] - 0.03 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
