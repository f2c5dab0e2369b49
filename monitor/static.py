"""Style, script and pictures: read once, and cached by browsers without limit.

The address of a file changes when its content does.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from markupsafe import Markup

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Static:
    """Files by name."""

    def __init__(self, folder: Path = STATIC) -> None:
        files = sorted(path for path in folder.iterdir() if path.suffix in TYPES)
        self._files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in files}
        digest = sha256(b"".join(body for body, _ in self._files.values()))
        self.version = digest.hexdigest()[:12]

    @property
    def icon(self) -> Markup:
        """Return our icon as a part of the page: a request of its own would delay the paint."""
        body, _ = self._files["icon.svg"]
        return Markup(body.decode())  # our own file

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return (content, media type) of a file, None if there is none."""
        return self._files.get(name)

    def address(self, name: str) -> str:
        """Return the address of a file."""
        assert name in self._files
        return f"/monitor/static/{self.version}/{name}"
