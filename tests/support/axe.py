"""axe finds obstacles that keep people from using a page. The package axe-core-python has it."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import files
from typing import Any

from tests.support.cdp import Page

BAD = ("serious", "critical")


@cache
def _script() -> str:
    """Return the script.

    The package is read, not imported: its wrapper of axe needs a browser driver.
    """
    found = [one for one in files("axe-core-python") or () if one.name == "axe.min.js"]
    assert len(found) == 1
    return found[0].read_text(encoding="utf-8")


def findings(page: Page) -> list[str]:
    """Return serious and critical findings on the present page: rule, where, and why."""
    page.run(_script() + ";0")
    reply: dict[str, Any] = page.run(
        "axe.run(document, {resultTypes: ['violations'], elementRef: false})"
        ".then((found) => ({violations: found.violations}))"
    )
    return [
        f"{one['id']}: {node['target']}: {json.dumps(node.get('failureSummary', ''))[:300]}"
        for one in reply["violations"]
        if one["impact"] in BAD
        for node in one["nodes"]
    ]
