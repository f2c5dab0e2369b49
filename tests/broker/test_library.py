"""The examples of ``docs/library.md`` work, and so does a program's client at a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl import Client
from greencrawl.cli.local.site_server import Site, serve
from greencrawl.schema.errors import InvalidConfig, Refused, Unavailable
from tests.support.certificates import authority, signed
from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.system import System, wait_until

DOCS = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
TOKEN = "an-administrators-token"
TOKENS = {"admin_token": TOKEN, "worker_token": "a-workers-token"}
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
AT_A_BROKER = [code for code in EXAMPLES if "Client(" in code]


def program(code: str, folder: Path) -> str:
    """Run a program in a process of its own, in which nothing is patched; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", [code for code in EXAMPLES if code not in AT_A_BROKER])
def test_examples_without_a_broker_run(code: str, tmp_path: Path) -> None:
    assert program(code, tmp_path) == ""


def test_the_table_of_methods_has_all_methods_of_the_client() -> None:
    rows = re.search(r"^\| method \| returns \|\n(?:\|.*\n)+", DOCS, re.MULTILINE)
    assert rows is not None
    told = set(re.findall(r"`(\w+)\(", "".join(row.split("|")[1] for row in rows[0].splitlines())))
    assert told == {name for name in vars(Client) if not name.startswith("_")}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(Site()) as url:
        yield url


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("system"), **TOKENS) as started:
        started.start_broker()
        yield started


def client_of(system: System, token: str | None = TOKEN) -> Client:
    return Client(f"http://127.0.0.1:{system.port}", token)


def test_examples_at_a_broker_run(system: System, site: str, tmp_path: Path) -> None:
    def run(code: str) -> str:
        here = f'Client("http://127.0.0.1:{system.port}", {TOKEN!r})'
        code = code.replace('Client("http://127.0.0.1:8765")', here)
        return program(code.replace("https://example.org/", site), tmp_path)

    first, second = AT_A_BROKER
    assert run(first.replace("max_pages=100", "max_pages=100, delay=0")) == ""
    system.start_worker()
    printed = run(second.replace("sleep(1)", "sleep(0.1)")).splitlines()
    assert any(line.startswith(f"{site}contact.html ") for line in printed)
    assert any(line.startswith(f"{site}plants/mint.html 200 20") for line in printed)

    exported = list(client_of(system).export("example", bodies=True))
    command = subprocess.run(
        [sys.executable, "-P", "-m", "greencrawl.cli", "export", "--pages-only", "--bodies"],
        cwd=tmp_path,
        env={**os.environ, "GREENCRAWL_DATA": system.variables["DATA"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert exported == [json.loads(line) for line in command.stdout.splitlines()]
    assert len(exported) > 15
    plain = next(client_of(system).export("example", status="3xx"))
    assert (plain["final_url"], "body" in plain) == (f"{site}plants/index.html", False)


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from greencrawl import Client

client = Client(*sys.argv[1:])
def ask(number):
    client.seed("shared", [f"http://h{number}.example/{n}" for n in range(1500)])
    return client.status("shared").crawls[0].state
with ThreadPoolExecutor(8) as pool:
    print(*set(pool.map(ask, range(8))))
print(client.status("shared").crawls[0].admitted)
"""


def test_threads_of_a_plain_program_share_a_client(system: System, tmp_path: Path) -> None:
    client_of(system).create("shared", scope="any")
    client_of(system).pause("shared")
    code = THREADS.replace("*sys.argv[1:]", f"'http://127.0.0.1:{system.port}', {TOKEN!r}")
    assert program(code, tmp_path).split() == ["paused", str(8 * 1500)]
    reply = client_of(system).seed("shared", (f"http://h0.example/{n}" for n in range(1501)))
    assert (reply.duplicate, reply.added, len(reply.items)) == (1500, 1, 1501)
    assert client_of(system).stop("shared", now=True).state == "paused"
    assert client_of(system).resume("shared").state == "active"


def test_a_refusal_of_the_broker_is_raised_with_its_status(system: System) -> None:
    for wrong, status in ((None, 401), ("another", 401)):
        with pytest.raises(Refused) as caught:
            client_of(system, wrong).crawls()
        assert caught.value.status == status
    client = client_of(system)
    with pytest.raises(Refused) as caught:
        client.crawl("no-such")
    assert caught.value.status == 404
    with pytest.raises(Refused) as caught:
        next(client.pages("no-such"))
    assert caught.value.status == 404
    with pytest.raises(InvalidConfig, match="max_page"):
        client.create("wrong", max_page=1)
    assert client.create("gone").state in ("active", "done")
    assert [crawl.name for crawl in client.crawls() if crawl.name == "gone"] == ["gone"]
    client.delete("gone")
    with pytest.raises(Refused):
        client.crawl("gone")


def test_the_first_address_that_answers_is_asked(system: System) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match="cannot connect"):
        Client(nowhere).crawls()
    client = Client([nowhere, f"http://127.0.0.1:{system.port}/"], TOKEN)
    assert client.create("second").name == "second"
    for wrong in ("127.0.0.1:8765", "ftp://127.0.0.1", "http://", []):
        with pytest.raises(InvalidConfig):
            Client(wrong)


def test_a_broker_with_tls_is_verified(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    certificate, key = signed(ca, "broker", address="127.0.0.1")
    tls = {"tls_cert": str(certificate), "tls_key": str(key), **TOKENS}
    with System(tmp_path / "system", **tls) as system:
        address = f"https://127.0.0.1:{system.port}"
        trusting = Client(address, TOKEN, ca=str(ca))

        def serving() -> bool:
            try:
                return trusting.crawls() == []
            except Unavailable:
                return False

        system.broker = system._spawn("broker", "")
        wait_until(serving, 60, "the broker is ready")
        with pytest.raises(Unavailable, match="certificate"):
            Client(address, TOKEN).crawls()
    with pytest.raises(InvalidConfig, match="ca: "):
        Client(address, TOKEN, ca=str(tmp_path / "none.pem"))
