"""Files of others: unchanged, named with their licence, and small."""

from __future__ import annotations

import hashlib
import json

from greencrawl.monitor.static import STATIC, Static
from tests.support.checkout import ROOT

OURS = {"icon.svg", "monitor.css", "monitor.js"}
MOST_LINES, MOST_BYTES = 220, 100 * 1024


def test_the_sbom_names_exactly_the_vendored_files() -> None:
    sbom = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))
    named = {}
    for library in sbom["components"]:
        assert library["purl"].startswith("pkg:npm/")
        assert [one["alg"] for one in library["hashes"]] == ["SHA-512"]
        assert library["licenses"]
        for file in library["components"]:
            named[file["name"]] = file["hashes"][0]["content"]
    vendored = [path for path in STATIC.iterdir() if path.name not in OURS]
    found = {
        f"monitor/static/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendored
    }
    assert found == named
    assert "Permission is hereby granted" in (STATIC / "uPlot.LICENSE").read_text("utf-8")


def test_the_files_that_browsers_load_are_small() -> None:
    files = [path for path in STATIC.iterdir() if Static().get(path.name) is not None]
    assert len(files) == 5
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    script = (STATIC / "monitor.js").read_text(encoding="utf-8")
    assert len(script.splitlines()) < MOST_LINES
    for word in ("eval(", "innerHTML", "document.write", "http://", "https://"):
        assert word not in script
