"""A real lighttpd with files behind HTTP Basic and Digest, stopped by process id."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.faketime import library
from tests.support.ports import free_port
from tests.support.system import wait_until

USERNAME = "reader"
REALM = "Archive"

_CONFIG = """
server.modules = ("mod_auth", "mod_authn_file", "mod_accesslog")
server.document-root = "{folder}/files"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{folder}/error.log"
server.pid-file = "{folder}/pid"
server.upload-dirs = ("{folder}")
index-file.names = ("index.html")
mimetype.assign = (".html" => "text/html; charset=utf-8")
accesslog.filename = "{folder}/access.log"
accesslog.format = "%A %m %U %s %u %{{Authorization}}i"
auth.cache = ()
{areas}
"""
_AREA = """
$SERVER["socket"] == "{address}:{port}" {{
  auth.backend = "{backend}"
  auth.backend.{backend}.userfile = "{folder}/{users}"
  auth.require = ("" => ("method" => "{method}", "algorithm" => "{algorithm}",
    "realm" => "{realm}", "require" => "valid-user"))
}}
"""

ADDRESSES = {"basic": "127.0.0.3", "MD5": "127.0.0.4", "SHA-256": "127.0.0.5"}
"""The address of each kind of authentication: of Basic, and of Digest with each algorithm."""


class Lighttpd:
    """A context manager. Serves ``pages`` files, ``/1.html`` … linked from ``/``, on one port of
    the :data:`ADDRESSES`; each address asks for the same name and password in its own way."""

    def __init__(self, folder: Path, pages: int = 20) -> None:
        self.folder = folder
        self.pages = pages
        self.port = free_port()
        self.password = f"read-{secrets.token_urlsafe(12)} ü"
        self._ahead = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lighttpd:
        files = self.folder / "files"
        files.mkdir(parents=True)
        links = "".join(f'<a href="/{n}.html">{n}</a> ' for n in range(1, self.pages + 1))
        (files / "index.html").write_text(f"<title>Archive</title>{links}")
        for n in range(1, self.pages + 1):
            (files / f"{n}.html").write_text(f"<title>File {n}</title><a href='/'>Back</a>")
        (self.folder / "users").write_text(f"{USERNAME}:{self.password}\n")
        for name in ("md5", "sha256"):
            text = f"{USERNAME}:{REALM}:{self.password}"
            digest = hashlib.new(name, text.encode()).hexdigest()
            (self.folder / f"users-{name}").write_text(f"{USERNAME}:{REALM}:{digest}\n")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve; Digest's nonces are good for ten minutes of the server's clock.

        Raises FileNotFoundError without libfaketime.
        """
        preload = library()
        if preload is None:
            raise FileNotFoundError("libfaketime is not installed: apt-get install libfaketime")
        areas = [
            _AREA.format(
                address=ADDRESSES["basic"], port=self.port, backend="plain", folder=self.folder,
                users="users", method="basic", algorithm="MD5", realm=REALM,
            )
        ]  # fmt: skip
        areas += [
            _AREA.format(
                address=ADDRESSES[algorithm], port=self.port, backend="htdigest",
                folder=self.folder, users=f"users-{name}", method="digest", algorithm=algorithm,
                realm=REALM,
            )
            for algorithm, name in (("MD5", "md5"), ("SHA-256", "sha256"))
        ]  # fmt: skip
        config = _CONFIG.format(folder=self.folder, port=self.port, areas="".join(areas))
        (self.folder / "lighttpd.conf").write_text(config)
        binary = shutil.which("lighttpd") or "/usr/sbin/lighttpd"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary, "-D", "-f", str(self.folder / "lighttpd.conf")],
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "LD_PRELOAD": str(preload),
                    "FAKETIME": f"+{self._ahead}",
                    "DONT_FAKE_MONOTONIC": "1",
                },
            )
        try:
            wait_until(self._ready, 10, "lighttpd serves")
        except BaseException:
            self.stop()
            raise

    def let_nonces_age(self) -> None:
        """Restart the server an hour later: every nonce is stale then, and a client gets a new
        one."""
        self.stop()
        self._ahead += 3600
        self.start()

    def stop(self) -> None:
        """End the server; its log is complete afterwards."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)

    def url(self, way: str, path: str = "/") -> str:
        return f"http://{ADDRESSES[way]}:{self.port}{path}"

    def answers(self, way: str) -> list[tuple[str, int, str]]:
        """Return (path, status, user or "") of each request in the log to one address."""
        lines = (self.folder / "access.log").read_text().splitlines()
        found = (line.split(" ", 5) for line in lines)
        return [
            (path, int(status), "" if user == "-" else user)
            for address, _, path, status, user, *_ in found
            if address == ADDRESSES[way]
        ]

    def digests(self, way: str) -> list[dict[str, str]]:
        """Return the fields of each Authorization header of Digest that came, in the log's
        order."""
        lines = (self.folder / "access.log").read_text().splitlines()
        headers = (line.split(" ", 5)[5] for line in lines if line.startswith(ADDRESSES[way]))
        return [
            {name: quoted or plain for name, quoted, plain in _FIELD.findall(header)}
            for header in headers
            if header.startswith("Digest ")
        ]

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"lighttpd ended:\n{(self.folder / 'log').read_text()}")
        for address in ADDRESSES.values():
            with socket.socket() as probe:
                if probe.connect_ex((address, self.port)):
                    return False
        return True


_FIELD = re.compile(r'(\w+)=(?:\\?"((?:[^"\\]|\\(?!"))*)\\?"|([^\s,]+))')
"""lighttpd escapes the quotation marks of what it logs."""
