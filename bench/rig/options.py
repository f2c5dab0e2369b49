"""The words of a benchmark's command line."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter


def parser(module: str, text: str | None, short: str = "") -> ArgumentParser:
    """Of ``python -m MODULE``: ``text`` is about it, ``short`` about its option ``--short``."""
    made = ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=RawDescriptionHelpFormatter
    )
    if short:
        made.add_argument("--short", action="store_true", help=short)
    return made
