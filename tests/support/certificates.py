"""A certificate authority for a test, and certificates that it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


def authority(folder: Path) -> Path:
    """Make an authority; return the file of its certificate, in ``folder``, with the key beside
    it."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(
        f"req -x509 {_KEY} -days 2 -subj /CN=authority -keyout {folder}/ca.key -out {folder}/ca.pem"
    )
    return folder / "ca.pem"


def signed(ca: Path, name: str, *, address: str = "", host: str = "") -> tuple[Path, Path]:
    """Return (certificate, key) for an IP address or a host, signed by ``ca``."""
    folder = ca.parent
    request, certificate, key = (folder / f"{name}.{kind}" for kind in ("csr", "pem", "key"))
    subject = f"IP:{address}" if address else f"DNS:{host}"
    (folder / f"{name}.ext").write_text(f"subjectAltName={subject}\n")
    _openssl(f"req -new {_KEY} -subj /CN={name} -keyout {key} -out {request}")
    _openssl(
        f"x509 -req -in {request} -CA {ca} -CAkey {folder}/ca.key -CAcreateserial -days 2 "
        f"-extfile {folder}/{name}.ext -out {certificate}"
    )
    return certificate, key


def _openssl(arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True)
