"""The body of ``python -m greencrawl.broker`` and of ``python -m greencrawl.logger``."""

from __future__ import annotations

import sys
from collections.abc import Callable

from greencrawl.schema import crash_points, garbage, log
from greencrawl.schema.errors import FrontierMismatch, GreencrawlError, InvalidConfig
from greencrawl.schema.process.folder import folder_text
from greencrawl.schema.settings import Settings, changed, load

USAGE, FAILURE = 2, 1
"""Exit codes: for wrong settings, and for a part that could not be reached or used."""


def serve(program: str, arguments: list[str], run: Callable[[Settings], None]) -> int:
    """Read the settings and ``run``; return the exit code. If this fails, one line says why.

    There are no arguments. ``run`` calls :func:`log_settings`; a GreencrawlError of it is printed.
    """
    if arguments:
        print(f"usage: python -m greencrawl.{program} (settings: GREENCRAWL_*)", file=sys.stderr)
        return USAGE
    try:
        settings = load()
        log.configure(program, settings.log_level)
        crash_points.arm(settings.fault)
        try:
            run(settings)
        except OSError as error:
            if not (what := folder_text(error, settings.data)):
                raise
            raise GreencrawlError(what) from error
    except GreencrawlError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, InvalidConfig | FrontierMismatch) else FAILURE
    return 0


def log_settings(program: str, settings: Settings) -> None:
    """Log the settings that differ from the defaults, when the part that keeps our logs is
    ready."""
    log.logger(program).info("settings_loaded", **changed(settings))
    garbage.started()
