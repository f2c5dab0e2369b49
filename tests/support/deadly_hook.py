"""A user's hook that kills, hangs or freezes its process on certain pages and requests."""

from __future__ import annotations

import os
import signal
import time

import requests

from greencrawl.schema.records import Fetched, Page, Task
from greencrawl.worker.auth import Login


class DeadlyLogin(Login):
    """A login whose check of a page does what its URL says; "out" in it means that we are logged
    out."""

    def user_login(self, session: requests.Session, name: str, password: str) -> None:
        session.headers["X-Name"] = name

    def logged_out(self, fetched: Fetched) -> bool:
        _do(fetched.url)
        return "out" in fetched.url


def on_page(page: Page, fetched: Fetched) -> dict[str, int]:
    _do(page.title)
    return {"pid": os.getpid()}


def request(task: Task, headers: dict[str, str]) -> dict[str, str]:
    if "/request-" in task.url:
        _do(task.url)
    return headers


def _do(word: str) -> None:
    if "kill" in word:
        os.kill(os.getpid(), signal.SIGKILL)
    while "hang" in word:
        continue
    while "wait" in word:
        time.sleep(1)  # gevent's: the hub goes on turning
    if "exit" in word:
        os._exit(3)
