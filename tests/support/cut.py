"""A store that can be cut off from a process."""

from __future__ import annotations

from typing import Any

from greencrawl.schema.errors import Unavailable


class CutStore:
    """It passes calls to ``store`` while ``cut`` is false; otherwise every call of a method raises
    Unavailable."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            if self.cut:
                raise Unavailable("cut off from the store")
            return found(*args, **more)

        return call
