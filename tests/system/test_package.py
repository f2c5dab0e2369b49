"""The package as users get it: built, installed into an empty environment, and at work there.

By day nothing is downloaded: the environment borrows the tests' libraries, except Greencrawl and
its compiled part. By night pip downloads all that the package says it needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import greencrawl
from greencrawl.cli.local.site_server import Site, serve
from greencrawl.schema.errors import Unavailable
from tests.support.checkout import ROOT
from tests.support.effort import by_night, cases
from tests.support.mariadb import MariaDb
from tests.support.ports import free_port
from tests.support.system import wait_until

SECONDS = 120
DOWNLOAD_SECONDS = 600
ROOMS = ("broker", "cli", "logger", "monitor", "schema", "store", "worker")
COMPILER = shutil.which("cc")
MADE = "greencrawl_speedups_*"
OWN = ("greencrawl.pth", MADE, "__pycache__")
"""The parts of our own environment that the new one does not get."""

STAND_IN = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "schema"
version = "0.7"
[tool.setuptools]
py-modules = ["schema"]
"""

HOOK = """
import schema
from greencrawl.worker.auth import Login

def on_page(page, fetched):
    return {"schema": schema.ORIGIN, "login": Login.__module__.partition(".")[0]}
"""


@dataclass
class Installed:
    """An environment with the installed wheel, and the built files."""

    venv: Path
    sdist: Path
    wheel: Path

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    def environ(self, **settings: str) -> dict[str, str]:
        """Return a user's environment: nothing leads to the checkout."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GREENCRAWL_", "PYTHON"))}
        return kept | {f"GREENCRAWL_{name.upper()}": value for name, value in settings.items()}

    def run(
        self,
        *command: str,
        cwd: Path,
        environ: dict[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment."""
        program, *arguments = command
        return subprocess.run(
            [str(self.venv / "bin" / program), *arguments],
            cwd=cwd,
            env=environ or self.environ(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def said(self, *command: str, cwd: Path, **settings: str) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run(*command, cwd=cwd, environ=self.environ(**settings))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def process(
        self, part: str, folder: Path, **settings: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run ``python -m greencrawl.PART``; it must end well when it is told to."""
        log = folder / f"{part}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.python, "-m", f"greencrawl.{part}"],
                cwd=folder,
                env=self.environ(**settings),
                stdout=output,
                stderr=output,
            )
        try:
            yield process
            assert process.poll() is None, log.read_text()
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def build(source: Path, target: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *options, "-o", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def install(python: str, wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index"]
    done = subprocess.run(
        [*command, "--no-deps", "--disable-pip-version-check", str(wheel)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def libraries(folder: Path) -> Path:
    """Make a folder with links to all installed packages of the tests, except our own."""
    folder.mkdir()
    hidden = {found for name in OWN for place in sites() for found in place.glob(name)}
    for place in sites():
        for found in place.iterdir():
            if found not in hidden and not (folder / found.name).exists():
                (folder / found.name).symlink_to(found)
    return folder


def sites() -> list[Path]:
    """Return the folders of installed packages."""
    return [Path(path) for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("package")
    checkout, dist = folder / "checkout", folder / "dist"
    checkout.mkdir()
    for name in ("src", "site", *ROOMS):
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=unwanted)
    for pattern in ("pyproject.toml", "setup.py", "README.md", "LICENSE*", "NOTICE*"):
        for file in ROOT.glob(pattern):
            shutil.copy(file, checkout)
    build(checkout, dist)  # the wheel is made from the sdist
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(f"{libraries(folder / 'libraries')}\n")
    made = Installed(venv, sdist, wheel)
    install(made.python, wheel)
    return made


def unpacked(sdist: Path, folder: Path) -> Path:
    subprocess.run(["tar", "-xzf", sdist, "-C", folder], check=True)
    (source,) = folder.glob("greencrawl-*")
    return source


def packed(wheel: Path) -> list[str]:
    """Return the names of the files in a wheel, except those about the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def shipped() -> set[str]:
    """Return every file of the package in the checkout, as ``greencrawl/…``."""
    home = ROOT / "src" / "greencrawl"
    return {
        str((Path(top) / name).relative_to(home.parent))
        for top, _, names in os.walk(home, followlinks=True)
        for name in names
        if "__pycache__" not in top
    }


def test_wheel_and_sdist_hold_the_whole_package_and_no_more(installed: Installed) -> None:
    names = packed(installed.wheel)
    compiled = [name for name in names if name.startswith("greencrawl_speedups_")]
    assert len(compiled) == (COMPILER is not None)
    assert set(names) - set(compiled) == shipped()
    assert len(names) == len(set(names))
    top = f"greencrawl-{greencrawl.__version__}"
    with tarfile.open(installed.sdist) as sdist:
        members = {member.name: member for member in sdist.getmembers()}
    inside = f"{top}/src/"
    files = {name for name, member in members.items() if not member.isdir()}
    assert {
        name.removeprefix(inside) for name in files if name.startswith(f"{inside}greencrawl/")
    } == shipped()
    assert {f"{top}/pyproject.toml", f"{top}/setup.py"} < files
    assert not [name for name in files if name.startswith((f"{top}/tests", f"{top}/bench"))]
    wanted = {"zh/茶.html", "robots.txt"}
    assert {f"greencrawl/site/{name}" for name in wanted} < set(names)
    kinds = {Path(name).suffix for name in names}
    assert {".lua", ".sql", ".c", ".h", ".typed", ".toml"} <= kinds


def test_the_installed_package_knows_the_words_of_actions(
    installed: Installed, tmp_path: Path
) -> None:
    program = (
        "from greencrawl.schema.net import actions; print(actions.by_url('/3/%E5%88%A0%E9%99%A4'))"
    )
    done = installed.run(
        installed.python, "-X", "utf8", "-c", program, cwd=tmp_path, environ=installed.environ()
    )
    assert "'删除'" in done.stdout, done.stderr


def test_pinned_versions_satisfy_the_requirements_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {one.name: one for one in map(Requirement, project["dependencies"])}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = {
        one.name: next(iter(one.specifier)).version
        for one in (Requirement(line) for line in lines if line and not line.startswith("#"))
    }
    assert pinned.keys() - wanted.keys() == {"honcho", "warcio", "async-timeout"}
    assert wanted.keys() <= pinned.keys()
    for name, one in wanted.items():
        (bound,) = one.specifier
        assert bound.operator == ">="
        assert f"{pinned[name]}.".startswith(f"{bound.version}."), name


def test_what_redis_requires_on_an_old_python_is_pinned_for_it() -> None:
    """Else a fresh machine with Python 3.11.2, as Debian 12 has, gets any version."""
    needed = [one for one in map(Requirement, requires("redis") or []) if "extra" not in str(one)]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = {
        one.name: one for one in (Requirement(line) for line in lines if line and line[0] != "#")
    }
    assert {one.name for one in needed} == {"async-timeout"}
    for one in needed:
        pin = pins[one.name]
        assert str(pin.marker) == str(one.marker)
        assert one.specifier.contains(next(iter(pin.specifier)).version)


def test_the_command_tells_the_version_of_the_package(installed: Installed, tmp_path: Path) -> None:
    version = f"greencrawl {greencrawl.__version__}\n"
    assert installed.said("greencrawl", "--version", cwd=tmp_path) == version
    assert installed.said("python", "-m", "greencrawl", "--version", cwd=tmp_path) == version
    code = "from importlib.metadata import version; print('greencrawl', version('greencrawl'))"
    assert installed.said("python", "-c", code, cwd=tmp_path) == version


WHAT_READS = """
import greencrawl, sys
from greencrawl.worker.extract.text import compiled
from greencrawl import extract
page = extract(b"<p>a<p>b <a href=c>", "http://h/", "text/html")
print(greencrawl.__file__.startswith(sys.prefix), page.text, [link.url for link in page.links])
print(compiled and compiled.__file__.startswith(sys.prefix))
"""


READ = ("python", "-c", WHAT_READS)
READS = "True a b ['http://h/c']\n"


@pytest.mark.skipif(COMPILER is None, reason="there is no compiler")
def test_a_wheel_has_the_part_in_c_and_is_for_this_python(
    installed: Installed, tmp_path: Path
) -> None:
    assert installed.said(*READ, cwd=tmp_path) == f"{READS}True\n"
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-linux" in installed.wheel.name


def test_the_demo_runs_from_an_empty_folder_and_says_how_to_compile_what_is_missing(
    installed: Installed, tmp_path: Path
) -> None:
    for made in installed.venv.glob(f"lib/python3*/site-packages/{MADE}"):
        made.unlink()  # as if it were for another lxml
    assert installed.said(*READ, cwd=tmp_path) == f"{READS}None\n"
    done = installed.run("greencrawl", "crawl", "--demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    data = tmp_path / "data" / "demo"
    out = installed.said("greencrawl", "export", "--data", str(data), cwd=tmp_path)
    titles = {json.loads(line).get("title") for line in out.splitlines()}
    assert len(titles) > 15, titles

    named = re.search(r"that needs the part in C: `(.+)` makes it", done.stderr)
    assert named, done.stderr
    program, *rest = named[1].split()
    assert rest == ["-m", "greencrawl.worker.extract.compile"]
    compiling = (str(tmp_path / program), *rest)
    failed = installed.run(*compiling, cwd=tmp_path, environ=installed.environ() | {"CC": "false"})
    assert failed.returncode == 1
    assert "everything but main text works without it, only slower" in failed.stderr
    assert installed.said(*READ, cwd=tmp_path) == f"{READS}None\n"
    if COMPILER is None:
        pytest.skip("there is no compiler")
    assert installed.said(*compiling, cwd=tmp_path) == ""
    assert installed.said(*READ, cwd=tmp_path) == f"{READS}True\n"


@pytest.mark.parametrize(
    ("shadow", "environ", "why"),
    cases(
        by_day=[("raise ImportError('there is no lxml')", {}, "there is no lxml")],
        by_night=[("", {"CC": "false"}, "exit status 1")],
    ),
)
def test_a_wheel_without_the_part_in_c_is_for_every_python(
    installed: Installed, tmp_path: Path, shadow: str, environ: dict[str, str], why: str
) -> None:
    source, dist = unpacked(installed.sdist, tmp_path), tmp_path / "dist"
    if shadow:
        (tmp_path / "lxml.py").write_text(shadow)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(dist)],
        cwd=source,
        env=installed.environ() | {"PYTHONPATH": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"the part in C was not compiled: {why}" in done.stderr
    (wheel,) = dist.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert set(packed(wheel)) == shipped()


@by_night
def test_pip_installs_the_sdist_with_all_it_needs_into_an_empty_environment(
    installed: Installed, tmp_path: Path
) -> None:
    """It builds in isolation, and downloads what pyproject.toml names: no pinned version."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    empty = Installed(tmp_path / "venv", installed.sdist, installed.wheel)
    pip = ("python", "-m", "pip", "--disable-pip-version-check")
    command = (*pip, "install", "-q", str(installed.sdist))
    done = empty.run(*command, cwd=tmp_path, seconds=DOWNLOAD_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    empty.said(*pip, "check", cwd=tmp_path)
    assert empty.said(*READ, cwd=tmp_path) == f"{READS}{None if COMPILER is None else True}\n"
    done = empty.run("greencrawl", "crawl", "--demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    data = tmp_path / "data" / "demo"
    out = empty.said("greencrawl", "export", "--data", str(data), cwd=tmp_path)
    assert len(out.splitlines()) > 15, out


@by_night
def test_a_hook_of_the_current_folder_may_import_a_distribution_named_schema(
    installed: Installed, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(STAND_IN)
    (source / "schema.py").write_text("ORIGIN = 'not ours'\n")
    build(source, tmp_path / "dist", "--wheel")
    (wheel,) = (tmp_path / "dist").glob("schema-*.whl")
    install(installed.python, wheel)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "own.py").write_text(HOOK)
    done = installed.run("greencrawl", "crawl", "--demo", "--hook", "own", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    data = folder / "data" / "demo"
    out = installed.said("greencrawl", "export", "--pages-only", "--data", str(data), cwd=folder)
    found = [json.loads(line)["fields"] for line in out.splitlines()]
    assert {"schema": "not ours", "login": "greencrawl"} in found


@pytest.mark.parametrize("name", ["worker.auth", "schema.records"])
def test_an_error_names_the_new_module_if_a_hook_imports_the_old_one(
    installed: Installed, tmp_path: Path, name: str
) -> None:
    (tmp_path / "own.py").write_text(f"import {name}\ndef on_page(page, fetched): ...\n")
    done = installed.run("greencrawl", "crawl", "--demo", "--hook", "own", cwd=tmp_path)
    first = name.partition(".")[0]
    assert done.returncode == 2
    assert f"`{first}` is called `greencrawl.{first}` now" in done.stderr


def test_broker_and_worker_of_the_package_crawl_into_mysql(
    installed: Installed, tmp_path: Path
) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    mariadb = MariaDb(tmp_path / "mariadb").start()
    settings = {
        "bind": f"127.0.0.1:{port}",
        "broker": address,
        "store": mariadb.url,
        "allow_networks": "127.0.0.0/8",
        "processes": "1",
        "worker_token": "a-token-of-workers",
        "admin_token": "a-token-of-the-test",
    }
    client = greencrawl.Client(address, "a-token-of-the-test")
    try:
        with (
            serve(Site()) as site,
            installed.process("broker", tmp_path, **settings) as broker,
            installed.process("worker", tmp_path, **settings),
        ):
            wait_until(lambda: broker.poll() is not None or serving(client), 60, "it serves")
            assert broker.poll() is None, (tmp_path / "broker.log").read_text()
            client.create("site", [site], delay=0)
            wait_until(lambda: client.status("site").crawls[0].state == "done", 60, "all is done")
            listed = installed.said(
                "greencrawl", "pages", "site", "--json", cwd=tmp_path, **settings
            )
            told = [page.url for page in client.pages("site")]
        out = installed.said("greencrawl", "export", "--pages-only", cwd=tmp_path, **settings)
    finally:
        mariadb.stop()
    stored = [json.loads(line)["url"] for line in out.splitlines()]
    assert [json.loads(line)["url"] for line in listed.splitlines()] == told == stored
    assert len(stored) > 15


def serving(client: greencrawl.Client) -> bool:
    try:
        client.crawls()
    except Unavailable:
        return False
    return True
