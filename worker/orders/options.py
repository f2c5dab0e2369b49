"""Which options a process of a worker follows, and who set them."""

from __future__ import annotations

import os
from typing import Any

from greencrawl.schema.records import InForce, NodeOptions
from greencrawl.schema.settings import Settings


def processes(settings: Settings, options: NodeOptions) -> int:
    """Return how many processes a worker is to have."""
    return options.processes or settings.processes or len(os.sched_getaffinity(0))


def in_force(settings: Settings, options: NodeOptions) -> dict[str, InForce]:
    """Return option → its value: the order, else the setting, else the default."""
    set_here: dict[str, Any] = {
        "processes": settings.processes or len(os.sched_getaffinity(0)),
        "greenlets": settings.greenlets,
        "log_level": settings.log_level,
    }
    unset = {"requests_per_second": 0.0, "paused": False, "drain": False}
    found = {}
    for name in NodeOptions.__struct_fields__:
        ordered = getattr(options, name)
        if ordered is not None:
            found[name] = InForce(ordered, "order")
        elif name in set_here:
            found[name] = InForce(set_here[name], settings.source(name))
        else:
            found[name] = InForce(unset[name], "default")
    return found
