"""gevent's patches, for the first lines of a process: nothing else may be imported before."""

from typing import Any

from gevent import events, monkey

_events: Any = events  # types-gevent does not have its functions


def patch_all() -> None:
    """:func:`gevent.monkey.patch_all` without plugins, of which none is of use here.

    By itself it looks for some at each of its 25 steps in the metadata of all installed packages:
    70 ms of CPU where 140 are installed, and 1 MB for what reads it.
    """
    and_plugins = _events.notify_and_call_entry_points
    _events.notify_and_call_entry_points = _events.notify
    try:
        monkey.patch_all()
    finally:
        _events.notify_and_call_entry_points = and_plugins
