"""Every link between two parts leads through a proxy of its own, all in one process.

:class:`Links` is that process as seen from outside. A link is cut in one of four ways: ``reset`` –
connections end and new ones are refused; ``drop`` – data are lost; ``hold`` – data arrive when the
link is restored, as over a line that was down for a while; ``late`` – only the answers are held,
the requests arrive.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from tests.nemesis.parts import HERE

NOWHERE = ("127.0.0.1", 1)
"""Nobody listens there."""


class Links:
    """Safe for threads. A name is "A-B", after the two parts."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nemesis.links"],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._lock = threading.Lock()
        self._cuts: dict[str, int] = {}
        self.names: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def _tell(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def open(self, name: str, port: int) -> int:
        """Start a proxy to a port of loopback; return its own port."""
        with self._lock:
            self.names.append(name)
            return int(self._tell(do="open", name=name, port=port))

    def point(self, name: str, port: int) -> None:
        """Lead the link to another port; open connections are reset."""
        with self._lock:
            self._tell(do="point", name=name, port=port)

    def cut(self, name: str, how: str) -> None:
        """Cut the link, or cut it once more: it is restored when every cut was taken back."""
        with self._lock:
            self._cuts[name] = self._cuts.get(name, 0) + 1
            self._tell(do="cut", name=name, how=how)

    def mend(self, name: str) -> None:
        """Take one cut back."""
        with self._lock:
            self._cuts[name] = max(0, self._cuts.get(name, 0) - 1)
            if not self._cuts[name]:
                self._tell(do="mend", name=name)

    def mend_all(self) -> None:
        """Take all cuts back."""
        with self._lock:
            for name in self.names:
                self._cuts[name] = 0
                self._tell(do="mend", name=name)

    def stop(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()


def _main() -> None:
    import gevent
    from gevent.event import Event

    from tests.support.proxy import TcpProxy

    proxies: dict[str, TcpProxy] = {}
    targets: dict[str, tuple[str, int]] = {}
    cut: set[str] = set()
    answers: dict[str, Event] = {}

    def obey(command: dict[str, Any]) -> Any:
        name = command["name"]
        if command["do"] == "open":
            targets[name] = ("127.0.0.1", command["port"])
            answers[name] = Event()
            answers[name].set()
            proxies[name] = TcpProxy(
                lambda: NOWHERE if name in cut else targets[name],
                lambda _: answers[name].wait() and None,
            ).start()
            return proxies[name].port
        proxy = proxies[name]
        if command["do"] == "point":
            targets[name] = ("127.0.0.1", command["port"])
            proxy.reset()
        elif command["do"] == "mend":
            cut.discard(name)
            answers[name].set()
            proxy.mend()
        elif command["how"] == "reset":
            cut.add(name)
            proxy.mend()
            proxy.reset()
        elif command["how"] == "drop":
            proxy.drop()
        elif command["how"] == "late":
            answers[name].clear()
        else:
            proxy.hold()
        return 0

    pool = gevent.get_hub().threadpool
    while line := pool.apply(sys.stdin.readline):
        print(json.dumps(obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    _main()
