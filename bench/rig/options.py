"""The command line of a benchmark."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter


def parser(module: str, text: str | None, short: str = "") -> ArgumentParser:
    """Return the parser of ``python -m MODULE``: ``text`` describes it, ``short`` its option
    ``--short``."""
    made = ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=RawDescriptionHelpFormatter
    )
    if short:
        made.add_argument("--short", action="store_true", help=short)
    return made
