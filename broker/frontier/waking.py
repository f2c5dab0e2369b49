"""Wake-ups: what scripts publish when a partition becomes due earlier, and what was missed of it.

Messages can be lost. After a reconnect, and every few seconds while someone waits, the number of
messages published is compared with those heard, which costs one command.
"""

from __future__ import annotations

import gevent

from broker.frontier import keys
from broker.frontier.leasing import Calls, Leasing
from broker.frontier.node import Node
from schema.errors import Unavailable
from schema.log import logger
from schema.wire import to_msgpack
from store.base import Store

log = logger("frontier")

LOOK_SECONDS = 5.0


class Waking:
    """Tells ``leasing`` what became due. One ``listen`` greenlet a node."""

    def __init__(self, calls: Calls, leasing: Leasing, store: Store) -> None:
        self._calls = calls
        self._leasing = leasing
        self._store = store

    def _look(self, node: Node, on: list[int]) -> None:
        """Learn all due times of a node afresh."""
        for crawl in self._store.crawls():
            if crawl.state != "active":
                continue
            replies = self._calls("count", dict.fromkeys(on, to_msgpack([crawl.id])))
            for p, (_, _, due, tend, _) in replies.items():
                self._leasing.note(p, crawl.id, due)
                self._leasing.note(p, 0, tend)

    def listen(self, node: Node, on: list[int]) -> None:
        """Follow a node's wake-ups; after a lost message or connection look at everything."""
        pause = 0.1
        while True:
            count = [0]
            checker = None
            try:
                for message in node.subscribe(keys.WAKE):
                    if not message:
                        count[0] = int(node.command("GET", keys.WAKE) or 0)
                        self._look(node, on)
                        checker = gevent.spawn(self._check, node, on, count)
                        pause = 0.1
                        continue
                    p, crawl, ms = message.split()
                    count[0] += 1
                    self._leasing.note(int(p), int(crawl), float(ms))
            except Unavailable as error:
                log.warning("wake_ups_lost", node=node.shown, reason=str(error))
            except Exception:  # a defect must not leave this broker deaf
                log.exception("wake_ups_failed")
            finally:
                if checker is not None:
                    checker.kill()
            gevent.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _check(self, node: Node, on: list[int], count: list[int]) -> None:
        """While calls wait, a cheap look every few seconds for messages that were lost."""
        while True:
            gevent.sleep(LOOK_SECONDS)
            if not self._leasing.waiting:
                continue
            try:
                heard = count[0]
                published = int(node.command("GET", keys.WAKE) or 0)
                gevent.sleep(0.05)  # messages on their way
                if published > count[0] or published < heard:  # less: Redis was emptied
                    log.info("wake_ups_missed", node=node.shown, missed=published - count[0])
                    count[0] = published
                    self._look(node, on)
            except Unavailable:
                continue  # the listener meets it as well, and waits
