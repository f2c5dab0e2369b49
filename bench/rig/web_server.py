"""The servers of :mod:`bench.rig.web`, DNS too: ``python -m bench.rig.web_server CONFIG.json``.

One greenlet a connection.
"""

from gevent import monkey

monkey.patch_all()

import datetime
import json
import random
import signal
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import gevent
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gevent.event import Event
from gevent.server import DatagramServer, StreamServer

from bench.rig.web import Host, Spec, host
from bench.rig.web_pages import Pages

DNS_SECONDS = 0.02
JITTER = 0.2
"""Share of a latency by which an answer may be earlier or later."""
ROBOTS = b"User-agent: *\nDisallow: /private/\n"
CHUNK = 5792
"""Bytes that a shaped link lets through in one piece: four segments."""


class Server:
    """The web of a :class:`Spec`, and the log of its requests."""

    def __init__(self, config: dict[str, Any]) -> None:
        spec = Spec(**config["spec"])
        self.spec = spec
        self.hosts: dict[str, Host] = {}
        for found in (host(spec, number) for number in range(spec.hosts)):
            self.hosts[found.name] = found
        port = "" if config["port"] in (80, 443) else f":{config['port']}"
        scheme = "https" if config["tls"] else "http"
        self._pages = Pages(spec, lambda n: f"{scheme}://{host(spec, n).name}{port}")
        self._latency: float | None = None
        self._rows: list[tuple[float, float, str, str, int]] = []
        self._log = Path(config["log"])
        self._sent = self._bytes = 0
        self._free_at = 0.0  # when the shaped link is free

    # -- pages

    def serve(self, sock: socket.socket, _: object) -> None:
        """Serve a connection in its greenlet."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = b""
        try:
            while True:
                while b"\r\n\r\n" not in waiting:
                    data = sock.recv(16384)
                    if not data:
                        return
                    waiting += data
                head, _, waiting = waiting.partition(b"\r\n\r\n")
                self._answer(sock, head.decode("latin-1"))
        except OSError:  # the client has gone; what it had is in the log
            return
        finally:
            sock.close()

    def _answer(self, sock: socket.socket, head: str) -> None:
        arrived = time.time()
        lines = head.split("\r\n")
        path = lines[0].split(" ")[1]
        named = next(line[5:].strip() for line in lines if line[:5].lower() == "host:")
        name = named.partition(":")[0]
        found = self.hosts.get(name)
        if found is not None and found.manner == "mute":
            gevent.sleep(3600)
        latency = self._latency if self._latency is not None else found.latency if found else 0.0
        if latency:  # latencies vary, or sessions that began together would stay synchronous
            gevent.sleep(latency * random.uniform(1 - JITTER, 1 + JITTER))
        kind, status = "text/html; charset=utf-8", 200
        if path == "/robots.txt":
            kind, body = "text/plain", ROBOTS
        elif path.startswith("/p/"):
            body = self._pages.body(name, path)
        else:
            status, body = 404, b"no such page"
        answer = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not Found'}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._send(sock, answer)
        self._rows.append((arrived, time.time(), name, path, status))
        if path != "/robots.txt":
            self._sent += 1
            self._bytes += len(body)

    def _send(self, sock: socket.socket, answer: bytes) -> None:
        rate = self.spec.bits_per_second
        if not rate:
            sock.sendall(answer)
            return
        for start in range(0, len(answer), CHUNK):
            piece = answer[start : start + CHUNK]
            self._free_at = max(time.monotonic(), self._free_at) + len(piece) * 8 / rate
            gevent.sleep(max(0.0, self._free_at - time.monotonic()))
            sock.sendall(piece)

    # -- what the bench asks

    def control(self, sock: socket.socket, _: object) -> None:
        """Answer one question of the bench."""
        path = sock.recv(4096).split(b" ")[1].decode()
        reply: dict[str, float] = {}
        if path == "/counts":
            reply = {
                "pages": self._sent,
                "bytes": self._bytes,
                "cpu": time.process_time(),
                "at": time.monotonic(),
            }
        elif path.startswith("/latency/"):
            given = path.rpartition("/")[2]
            self._latency = None if given == "own" else float(given)
        elif path == "/flush":
            with self._log.open("a") as log:
                for a, b, name, asked, status in self._rows:
                    log.write(f"{a:.4f} {b:.4f} {name} {asked} {status}\n")
            self._rows.clear()
        body = json.dumps(reply).encode()
        sock.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
        sock.close()


class Names(DatagramServer):
    """The DNS server: an address of 127.1.0.0/16, ``::1`` where nobody listens, or no such name."""

    def __init__(self, port: int, hosts: dict[str, Host]) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self._hosts = hosts

    def handle(self, data: bytes, address: Any) -> None:
        """Answer one DNS query."""
        from dnslib import AAAA, QTYPE, RCODE, RR, A, DNSRecord

        query = DNSRecord.parse(data)
        reply = query.reply()
        found = self._hosts.get(str(query.q.qname).rstrip(".").lower())
        refused = found is not None and found.manner == "refused"
        if found is None or found.manner == "missing":
            reply.header.rcode = RCODE.NXDOMAIN
        elif query.q.qtype == QTYPE.A and not refused:
            reply.add_answer(RR(query.q.qname, QTYPE.A, rdata=A(found.address), ttl=300))
        elif query.q.qtype == QTYPE.AAAA and refused:
            reply.add_answer(RR(query.q.qname, QTYPE.AAAA, rdata=AAAA("::1"), ttl=300))
        gevent.sleep(DNS_SECONDS)
        self.socket.sendto(reply.pack(), address)


class Certificates:
    """A CA, whose certificate is ``ca.pem``, and a context for each host, chosen by SNI."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = ec.generate_private_key(ec.SECP256R1())
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        self._key_pem = self._key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        own = self._made("authority of the bench", self._authority.public_key(), ca=True)
        (folder / "ca.pem").write_bytes(own.public_bytes(pem))
        self.default = self.prepare("www.s0000.test")
        self.default.sni_callback = self._pick

    def _pick(self, sock: Any, name: str | None, _: object) -> None:
        sock.context = self.prepare(name or "www.s0000.test")

    def prepare(self, name: str) -> ssl.SSLContext:
        """Return the TLS context of a host, with a certificate made for it."""
        known = self._contexts.get(name)
        if known is None:
            file = self._folder / f"{name}.pem"
            made = self._made(name, self._key.public_key(), ca=False)
            file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + self._key_pem)
            known = self._contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            known.load_cert_chain(file)
        return known

    def _made(self, name: str, key: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        def called(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        today = datetime.datetime.now(datetime.UTC)
        signer = self._authority.public_key()
        identity = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
        builder = (
            x509.CertificateBuilder()
            .subject_name(called(name))
            .issuer_name(called("authority of the bench"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(identity, critical=False)
        )
        if not ca:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._authority, hashes.SHA256())


def main(path: str) -> int:
    """Serve what the file at ``path`` describes, until it is ended."""
    config = json.loads(Path(path).read_text())
    server = Server(config)
    tls: dict[str, Any] = {}
    if config["tls"]:
        certificates = Certificates(Path(config["tls"]))
        for found in server.hosts.values():
            certificates.prepare(found.name)
        tls = {"ssl_context": certificates.default}
    servers = [
        StreamServer(("0.0.0.0", config["port"]), server.serve, backlog=4096, **tls),
        StreamServer(("127.0.0.1", config["control"]), server.control),
    ]
    if config["dns"]:
        servers.append(Names(config["dns"], server.hosts))
    for one in servers:
        one.start()
    stop = Event()
    gevent.signal_handler(signal.SIGTERM, stop.set)
    stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
