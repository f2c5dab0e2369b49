"""Greencrawl, a distributed web crawler: what programs may import from it. See docs/library.md."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["Client", "canonicalise", "extract", "fingerprint", "normalise", "parse_robots"]

TYPE_CHECKING = False  # as in `typing`, which takes long to import
if TYPE_CHECKING:
    from greencrawl.broker.library import Client
    from greencrawl.schema.net.normalising import normalise
    from greencrawl.schema.net.urls import canonicalise, fingerprint
    from greencrawl.worker.extract.main.library import extract
    from greencrawl.worker.robots.parser import parse as parse_robots
else:
    _PROMISED = {
        "Client": ("greencrawl.broker.library", "Client"),
        "canonicalise": ("greencrawl.schema.net.urls", "canonicalise"),
        "extract": ("greencrawl.worker.extract.main.library", "extract"),
        "fingerprint": ("greencrawl.schema.net.urls", "fingerprint"),
        "normalise": ("greencrawl.schema.net.normalising", "normalise"),
        "parse_robots": ("greencrawl.worker.robots.parser", "parse"),
    }

    def __getattr__(name: str) -> object:
        """Import only what a program asks for: our own processes ask for nothing here."""
        if name not in _PROMISED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, attribute = _PROMISED[name]
        found = globals()[name] = getattr(import_module(module), attribute)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
