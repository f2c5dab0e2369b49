"""TLS for the downloader, and the meaning of errors of connecting."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import certifi
from gevent import ssl

from greencrawl.schema.records import Failure, FailureKind


def connect_failure(error: OSError) -> Failure:
    """Return the failure for an error of ``connect`` or of the TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(FailureKind.TLS, error.verify_message)
    if isinstance(error, ssl.SSLError):
        return Failure(FailureKind.TLS, error.reason or str(error))
    detail = error.strerror or str(error)
    if isinstance(error, ConnectionRefusedError):
        return Failure(FailureKind.REFUSED, detail)
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return Failure(FailureKind.RESET, detail)
    if error.errno == errno.ETIMEDOUT:
        return Failure(FailureKind.CONNECT_TIMEOUT, detail)
    return Failure(FailureKind.UNREACHABLE, detail)


def wrapped(context: ssl.SSLContext, sock: socket.socket, host: str) -> ssl.SSLSocket:
    """Wrap a socket that is connected to ``host`` in TLS; no byte of it has been sent yet."""
    return context.wrap_socket(
        sock, server_hostname=host.rstrip("."), do_handshake_on_connect=False
    )


def tls_context() -> ssl.SSLContext:
    """Verify against the system's certificate authorities, or certifi's if it has none."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if paths.cafile is None and not (folder and folder.is_dir() and any(folder.iterdir())):
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION  # a peer could make us compute for ever
    return context
