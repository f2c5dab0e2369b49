"""Odd answers of our own (tests/support/odd_answers.py), read by us and by curl over loopback.

Servers really send the first eighteen; curl reads fifteen of them. The dangerous ones have to be
refused: they count as right if nothing is read.
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import SHUT_WR, create_server, socket

from bench.suites.table import Figure, tried
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Fetched
from greencrawl.worker.http.client import Downloader
from tests.support.odd_answers import ALSO_ODD, DANGEROUS, ODD

LEAST = 15
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


class Server:
    """Sends the answer that belongs to the path ``/NUMBER``, and closes."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._listener = create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, number: int) -> str:
        """Return the URL of an answer."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{number}"

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket) -> None:
        with sock, suppress(OSError):  # a client may have closed the connection already
            head = sock.recv(65536)
            sock.sendall(self._answers[int(head.split(b" ")[1][1:])])
            sock.shutdown(SHUT_WR)
            sock.recv(1)  # until the client has read it


def figures(folder: Path) -> list[Figure]:
    """Return the figures of ours and of curl, from the same server."""
    downloader = Downloader(_LOOPBACK, request_seconds=5)
    found = []
    for title, answers, least, wanted in (
        ("odd answers", ODD, LEAST, True),
        ("further odd answers", ALSO_ODD, len(ALSO_ODD), True),
        ("dangerous, refused", DANGEROUS, len(DANGEROUS), False),
    ):
        names, server = list(answers), Server(list(answers.values()))
        ours, curl = _ours(downloader, names, server), _curl(names, server)
        others = {"curl": _gives(curl, wanted)} if shutil.which("curl") else {}
        found.append(tried(title, names, _gives(ours, wanted), others, least, str))
    downloader.close()
    return found


def _gives(read: Callable[[str], bool], wanted: bool) -> Callable[[str], bool]:
    return lambda name: read(name) is wanted


def _ours(downloader: Downloader, names: list[str], server: Server) -> Callable[[str], bool]:
    def read(name: str) -> bool:
        found = downloader.fetch(
            server.url(names.index(name)), {}, max_body_bytes=9999, deadline=monotonic() + 60
        )
        return isinstance(found, Fetched) and found.body == b"hello"

    return read


def _curl(names: list[str], server: Server) -> Callable[[str], bool]:
    def read(name: str) -> bool:
        run = ["curl", "-s", "--max-time", "5", server.url(names.index(name))]
        ended = subprocess.run(run, capture_output=True, check=False)
        return ended.returncode == 0 and ended.stdout == b"hello"

    return read
