"""gevent's patches; a process applies them in its first lines, before any other import."""

from typing import Any

from gevent import events, monkey

_events: Any = events  # types-gevent lacks its functions


def patch_all() -> None:
    """Run :func:`gevent.monkey.patch_all` without plugins, since none is of use here.

    By default gevent looks for plugins at each of its 25 steps, in the metadata of all installed
    packages. This takes 70 ms of CPU where 140 packages are installed, and 1 MB for the code that
    reads metadata.
    """
    and_plugins = _events.notify_and_call_entry_points
    _events.notify_and_call_entry_points = _events.notify
    try:
        monkey.patch_all()
    finally:
        _events.notify_and_call_entry_points = and_plugins
