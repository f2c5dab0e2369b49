"""Grants: the vault keeps and shares them, and late writers never overwrite them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gevent
import msgspec
import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import auth
from greencrawl.worker.auth.base import Cookie, Grant, name_of
from greencrawl.worker.auth.state.late_grants import mark
from greencrawl.worker.auth.state.leases import LocalClaims
from greencrawl.worker.auth.state.sealing import Sealing
from greencrawl.worker.auth.state.vault import Vault

SECRET = "c00kie-of-the-session"
NAME = "shop-0123456789ab"
SEALING = Sealing(b"k" * 32, "logins")


class Shared:
    """The frontier's leases as its scripts keep them, with a clock to turn and with outages.

    The frontier carries out ``lost`` calls, but their answers are lost; while it is ``away``, it
    carries out none.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.kept: dict[str, tuple[int, bytes]] = {}
        self.holders: dict[str, tuple[str, float]] = {}
        self.counts: dict[str, int] = {}
        self.lost = 0
        self.away = False

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        self._ask()
        return self.kept.get(name)

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        self._ask()
        holder, until = self.holders.get(name, ("", 0.0))
        if until > self.now and holder != token:
            return 0
        if until <= self.now:
            self.counts[name] = self.counts.get(name, 0) + 1
        self.holders[name] = (token, self.now + seconds)
        self._answer()
        return self.counts[name]

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        self._ask()
        holder, until = self.holders.get(name, ("", 0.0))
        if until <= self.now or holder != token:
            return False
        if generation <= self.kept.get(name, (0, b""))[0]:
            return False
        self.kept[name] = (generation, sealed)
        self.counts[name] = 0
        self._answer()
        return True

    def login_drop(self, name: str, token: str) -> None:
        self._ask()
        if self.holders.get(name, ("", 0.0))[0] == token:
            del self.holders[name]
            self.counts[name] = 0
        self._answer()

    def _ask(self) -> None:
        if self.away:
            raise Unavailable("its node is away")

    def _answer(self) -> None:
        if self.lost:
            self.lost -= 1
            raise Unavailable("the connection was lost")


def grant(generation: int = 1, value: str = SECRET) -> Grant:
    return Grant(
        account="ann",
        generation=generation,
        made_ms=1,
        expires_ms=2,
        cookies=[Cookie("sid", value, "shop.example", secure=True)],
        headers={"x": "y"},
        token={"access_token": value, "scope": ["a"]},
        secrets_digest="d",
    )


class Host:
    """A host's folder; each ``vault()`` acts as another process."""

    def __init__(self, folder: Path, frontier: Shared | LocalClaims, *, shared: bool) -> None:
        self.folder, self.frontier, self.shared = folder, frontier, shared
        self.sealing = SEALING

    def vault(self) -> Vault:
        return Vault(self.folder, self.frontier, self.sealing if self.shared else None)

    @property
    def file(self) -> Path:
        return self.folder / f"{NAME}.json"


@pytest.fixture
def frontier() -> Shared:
    return Shared()


@pytest.fixture(params=["apart", "shared"])
def host(request: pytest.FixtureRequest, tmp_path: Path, frontier: Shared) -> Host:
    return Host(tmp_path / "logins", frontier, shared=request.param == "shared")


def put(vault: Vault, made: Grant) -> bool:
    claim = vault.claim(NAME)
    assert claim is not None
    with claim:
        return claim.put(made)


# -- one process after the other


def test_every_process_reads_a_grant_as_it_was_put(host: Host) -> None:
    vault = host.vault()
    assert vault.read(NAME) is None
    assert put(vault, grant())
    assert vault.read(NAME) == host.vault().read(NAME) == grant()


def test_the_file_of_a_grant_is_private_and_alone_in_its_folder(host: Host) -> None:
    put(host.vault(), grant())
    assert stat.S_IMODE(host.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(host.folder.stat().st_mode) == 0o700
    assert [path.name for path in host.folder.iterdir()] == [host.file.name]


def test_the_frontier_never_has_a_secret_in_clear(host: Host, frontier: Shared) -> None:
    put(host.vault(), grant())
    assert SECRET not in str(frontier.kept)
    assert (b"local:" in frontier.kept[NAME][1]) is not host.shared


def test_a_login_has_one_claim_at_a_time(host: Host) -> None:
    one, two = host.vault(), host.vault()
    claim = one.claim(NAME)
    assert claim is not None
    assert claim.count == 1
    assert two.claim(NAME) is None
    assert one.claim(NAME) is None, "a process has many greenlets"
    assert one.claim("another-000000000000") is not None
    with claim:
        assert claim.renew()
    assert not claim.renew()
    assert not claim.put(grant())
    again = one.claim(NAME)
    assert again is not None
    claim.drop()
    assert two.claim(NAME) is None, "a claim that is over gives back no later one"
    again.drop()
    assert two.claim(NAME) is not None


def test_a_claim_counts_the_earlier_claims_that_expired_without_a_grant(
    host: Host, frontier: Shared
) -> None:
    for count in (1, 2, 3):
        claim = host.vault().claim(NAME)
        assert claim is not None
        assert claim.count == count
        frontier.now += 1000
    assert put(host.vault(), grant())
    frontier.now += 1000
    claim = host.vault().claim(NAME)
    assert claim is not None
    assert claim.count == 1


def test_a_frozen_process_overwrites_no_newer_grant(host: Host, frontier: Shared) -> None:
    frozen = host.vault().claim(NAME)
    assert frozen is not None
    frontier.now += 1000
    assert put(host.vault(), grant(1, "of the second"))
    before = host.file.read_bytes()
    assert not frozen.put(grant(1, "of the frozen one"))
    frozen.drop()
    assert host.file.read_bytes() == before
    found = host.vault().read(NAME)
    assert found is not None
    assert found.token["access_token"] == "of the second"


def test_a_grant_is_kept_if_redis_forgot_its_claim_unless_another_process_claimed_it(
    host: Host, frontier: Shared
) -> None:
    """Only the refresh token in it is still good."""
    claim = host.vault().claim(NAME)
    assert claim is not None
    frontier.holders.clear()
    frontier.kept.clear()
    made = grant()
    with claim:
        assert claim.put(made)
    assert host.vault().read(NAME) == made
    assert not frontier.holders
    late = host.vault().claim(NAME)
    assert late is not None
    frontier.holders.clear()
    assert host.vault().claim(NAME) is not None
    assert not late.put(grant(2, "of the late one"))
    assert host.vault().read(NAME) == made


def test_a_grant_is_written_to_its_file_even_if_redis_does_not_answer(
    host: Host, frontier: Shared
) -> None:
    claim = host.vault().claim(NAME)
    assert claim is not None
    frontier.lost = 1
    made = grant()
    with pytest.raises(Unavailable):
        claim.put(made)
    assert Vault(host.folder, LocalClaims(), None).read(NAME) == made


def test_a_file_is_not_replaced_by_an_older_grant(host: Host) -> None:
    """A process froze after the frontier took its grant, and before it wrote the file."""
    vault = host.vault()
    vault._files.save(NAME, grant(5, "newer"))
    vault._files.save(NAME, grant(4, "older"))
    vault._files.save(NAME, grant(5, "as old"))
    kept = vault.read(NAME)
    assert kept is not None
    assert kept.token["access_token"] == "newer"


def test_the_generation_of_a_grant_rises_above_that_of_an_unreadable_one(
    host: Host, frontier: Shared
) -> None:
    frontier.kept[NAME] = (7, b"of another key")
    made = grant(1)
    assert put(host.vault(), made)
    assert made.generation == frontier.kept[NAME][0] == 8
    assert host.vault().read(NAME) == made


def test_a_put_whose_answer_was_lost_succeeds_when_it_is_repeated(
    host: Host, frontier: Shared
) -> None:
    claim = host.vault().claim(NAME)
    assert claim is not None
    made = grant()
    frontier.lost = 1
    with pytest.raises(Unavailable):
        claim.put(made)
    assert claim.put(made)
    assert host.vault().read(NAME) == made


def test_a_process_keeps_a_claim_whose_answer_was_lost(host: Host, frontier: Shared) -> None:
    vault = host.vault()
    frontier.lost = 1
    with pytest.raises(Unavailable):
        vault.claim(NAME)
    assert vault.claim(NAME) is not None
    assert host.vault().claim(NAME) is None, "another process"


def test_a_claim_can_be_taken_again_if_an_outage_interrupted_its_release(
    host: Host, frontier: Shared
) -> None:
    vault = host.vault()
    claim = vault.claim(NAME)
    assert claim is not None
    with claim:
        frontier.lost = 1
    assert vault.claim(NAME) is not None


# -- files that cannot be used


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-7]), "damaged"),
        (lambda file: file.write_bytes(b""), "damaged"),
        (lambda file: file.write_bytes(b"\xff\x00" * 50), "damaged"),
        (lambda file: file.write_bytes(b"[" * 100_000), "damaged"),
        (lambda file: file.write_bytes(b'{"version": 1}'), "damaged"),
        (lambda file: file.write_bytes(b'{"grant": {"token": {"a": ' + b"[" * 90_000), "damaged"),
        (lambda file: file.write_bytes(b" " * (1 << 20) + file.read_bytes()), "larger"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b":1,", b":9,", 1)), "version"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"shop-0", b"shop-1")), "another"),
        (lambda file: file.chmod(0o640), "open to others"),
        (lambda file: file.chmod(0o602), "open to others"),
        (lambda file: (file.rename(file.parent / "x"), file.symlink_to("x")), "link"),
        (lambda file: (file.unlink(), os.mkfifo(file, 0o600)), "plain file"),
        (lambda file: _give_away(file), "another user"),
    ],
)
def test_an_unusable_file_is_logged_once_and_replaced_by_the_next_login(
    tmp_path: Path,
    frontier: Shared,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], None],
    word: str,
) -> None:
    host = Host(tmp_path / "logins", frontier, shared=False)
    put(host.vault(), grant())
    harm(host.file)
    vault = host.vault()
    assert vault.read(NAME) is None
    assert vault.read(NAME) is None
    told = [line for line in capsys.readouterr().err.splitlines() if "kept_login_not_used" in line]
    assert len(told) == 1
    assert word in told[0]
    assert str(host.file) in told[0]
    assert "greencrawl login" in told[0]
    assert SECRET not in told[0]
    assert put(vault, grant(2, "fresh"))
    found = host.vault().read(NAME)
    assert found is not None
    assert found.token["access_token"] == "fresh"
    assert stat.S_IMODE(host.file.lstat().st_mode) == 0o600
    assert stat.S_ISREG(host.file.lstat().st_mode)


def test_a_shared_grant_survives_damage_to_its_file(
    tmp_path: Path, frontier: Shared, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(tmp_path / "logins", frontier, shared=True)
    put(host.vault(), grant())
    host.file.write_bytes(b"{")
    assert host.vault().read(NAME) == grant()
    assert "damaged" in capsys.readouterr().err
    assert b"ann" in host.file.read_bytes(), "it is mended"


def test_each_process_logs_in_for_itself_if_the_folder_cannot_be_used(
    tmp_path: Path, frontier: Shared, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logins").touch()
    host = Host(tmp_path / "logins", frontier, shared=False)
    vault = host.vault()
    assert vault.read(NAME) is None
    assert put(vault, grant())
    assert put(host.vault(), grant())
    said = capsys.readouterr().err
    assert "is no folder" in said
    assert SECRET not in said


def test_the_old_file_stays_if_the_new_grant_cannot_be_written(
    tmp_path: Path, frontier: Shared
) -> None:
    host = Host(tmp_path / "logins", frontier, shared=False)
    put(host.vault(), grant())
    before = host.file.read_bytes()
    ended = _run(
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from greencrawl.worker.auth.state.leases import LocalClaims\n"
        "from greencrawl.worker.auth.state.vault import Vault\n"
        "from greencrawl.worker.auth.base import Grant\n"
        f"vault = Vault(Path({str(host.folder)!r}), LocalClaims(), None)\n"
        f"claim = vault.claim({NAME!r})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "grant = Grant(account='bob' * 99, generation=1, made_ms=1)\n"
        "print(claim.put(grant))\n"
    )
    assert ended.stdout == "True\n", ended.stderr
    assert "File too large" in ended.stderr
    assert host.file.read_bytes() == before
    assert [path.name for path in host.folder.iterdir()] == [host.file.name]


def test_a_partial_file_of_a_dead_writer_is_replaced(host: Host) -> None:
    put(host.vault(), grant())
    (host.folder / f".{NAME}.json.new").write_bytes(b"half of a")
    made = grant(2)
    assert put(host.vault(), made)
    assert host.vault().read(NAME) == made
    assert [path.name for path in host.folder.iterdir()] == [host.file.name]


# -- several hosts


@pytest.fixture
def two(tmp_path: Path, frontier: Shared) -> tuple[Host, Host]:
    return (
        Host(tmp_path / "a", frontier, shared=True),
        Host(tmp_path / "b", frontier, shared=True),
    )


def test_machines_share_a_grant_through_the_frontier_and_keep_it_in_their_files(
    two: tuple[Host, Host],
) -> None:
    a, b = two
    put(a.vault(), grant())
    assert b.vault().read(NAME) == grant()
    assert b.file.read_bytes() == a.file.read_bytes()
    made = grant(2, "refreshed")
    put(b.vault(), made)
    assert a.vault().read(NAME) == made
    assert a.file.read_bytes() == b.file.read_bytes()


def test_a_grant_that_the_frontier_lost_is_restored_from_the_newest_file(
    two: tuple[Host, Host], frontier: Shared
) -> None:
    a, b = two
    put(a.vault(), grant(1, "old"))
    b.vault().read(NAME)
    put(b.vault(), grant(2, "new"))
    frontier.kept.clear()
    old = a.vault().read(NAME)
    assert old is not None
    assert frontier.kept[NAME][0] == 1
    new = b.vault().read(NAME)
    assert new is not None
    assert frontier.kept[NAME][0] == 2
    assert a.vault().read(NAME) == new
    assert not frontier.holders, "no claim is left over"


def test_no_grant_is_restored_while_another_machine_logs_in(
    two: tuple[Host, Host], frontier: Shared
) -> None:
    a, b = two
    put(a.vault(), grant())
    frontier.kept.clear()
    vault = b.vault()
    claim = vault.claim(NAME)
    assert claim is not None
    assert a.vault().read(NAME) == grant()
    assert not frontier.kept
    vault._files.save(NAME, grant())
    assert vault.read(NAME) == grant()
    assert a.vault().claim(NAME) is None, "reading does not give our own claim away"


# -- grants that the frontier gets late


@pytest.fixture
def renewed(two: tuple[Host, Host], frontier: Shared) -> Vault:
    """Return host a's vault; it renewed the shared grant while the frontier was away."""
    a, b = two
    put(a.vault(), grant(1, "spent"))
    b.vault().read(NAME)
    vault = a.vault()
    claim = vault.claim(NAME)
    assert claim is not None
    with claim:
        frontier.away = True
        with pytest.raises(Unavailable):
            claim.put(grant(2, "new"))
    frontier.away = False
    return vault


def token(vault: Vault) -> object:
    kept = vault.read(NAME)
    return kept and kept.token["access_token"]


def within(seconds: float, condition: Callable[[], object]) -> None:
    with gevent.Timeout(seconds):
        while not condition():
            gevent.sleep(0.01)


def test_no_machine_uses_a_grant_that_was_spent_during_an_outage_of_the_frontier(
    two: tuple[Host, Host], renewed: Vault, frontier: Shared
) -> None:
    a, b = two
    assert b.vault().claim(NAME) is None, "the claim is held until it is put"
    within(5, lambda: token(b.vault()) == "new")
    within(5, lambda: not frontier.holders)
    assert token(renewed) == "new"
    assert [path.name for path in a.folder.iterdir()] == [a.file.name]


def test_an_expired_claim_is_taken_again_after_an_outage_to_put_the_grant(
    two: tuple[Host, Host], renewed: Vault, frontier: Shared
) -> None:
    _, b = two
    frontier.away = True
    gevent.sleep(0.2)
    frontier.now += 1000
    frontier.away = False
    within(5, lambda: frontier.kept[NAME][0] == 2)
    assert token(b.vault()) == "new"


def test_a_grant_put_at_the_second_try_leaves_no_mark_and_no_claim(
    two: tuple[Host, Host], frontier: Shared
) -> None:
    a, b = two
    claim = a.vault().claim(NAME)
    assert claim is not None
    with claim:
        frontier.away = True
        with pytest.raises(Unavailable):
            claim.put(grant())
        assert len(list(a.folder.iterdir())) == 2
        frontier.away = False
        assert claim.put(grant())
    assert not frontier.holders
    assert [path.name for path in a.folder.iterdir()] == [a.file.name]
    assert b.vault().claim(NAME) is not None


@pytest.mark.parametrize("how", ["resume", "read"])
def test_the_next_process_puts_the_grant_that_a_dead_process_could_not_put(
    two: tuple[Host, Host], frontier: Shared, how: str
) -> None:
    """The last process died; its claim stands for a while."""
    a, b = two
    put(b.vault(), grant(1, "spent"))
    dead = a.vault()
    claim = dead.claim(NAME)
    assert claim is not None
    frontier.away = True
    with pytest.raises(Unavailable):
        claim.put(grant(2, "new"))
    frontier.away = False
    vault = a.vault()
    if how == "resume":
        vault.resume()
    else:
        assert token(vault) == "new"
    gevent.sleep(0.1)
    assert frontier.kept[NAME][0] == 1, "the dead one's claim stands"
    frontier.now += 1000
    within(5, lambda: frontier.kept[NAME][0] == 2)
    assert token(b.vault()) == "new"
    within(5, lambda: not frontier.holders)
    if how == "resume":
        assert [path.name for path in a.folder.iterdir()] == [a.file.name]


@pytest.mark.parametrize("made", [True, False])
def test_a_late_grant_waits_for_the_machine_that_took_over_the_claim(
    two: tuple[Host, Host], renewed: Vault, frontier: Shared, made: bool
) -> None:
    """That host's grant stands; if it puts none, the late grant is put."""
    a, b = two
    frontier.now += 1000
    claim = b.vault().claim(NAME)
    assert claim is not None
    with claim:
        gevent.sleep(0.1)
        assert frontier.kept[NAME][0] == 1
        if made:
            assert claim.put(grant(2, "of b"))
    within(5, lambda: [path.name for path in a.folder.iterdir()] == [a.file.name])
    assert frontier.kept[NAME][0] == 2
    assert token(b.vault()) == ("of b" if made else "new")
    assert not frontier.holders


def test_a_newer_grant_takes_the_place_of_a_late_one(
    two: tuple[Host, Host], renewed: Vault, frontier: Shared
) -> None:
    a, b = two
    frontier.away = True
    gevent.sleep(0.1)
    frontier.away = False
    claim = renewed.claim(NAME)
    assert claim is not None
    with claim:
        assert claim.put(grant(1, "newest"))
    assert token(b.vault()) == "newest"
    within(5, lambda: [path.name for path in a.folder.iterdir()] == [a.file.name])
    assert token(a.vault()) == "newest"


def test_the_mark_of_a_late_grant_is_deleted_if_its_file_is_gone(host: Host) -> None:
    put(host.vault(), grant())
    host.file.unlink()
    mark(host.folder, NAME).touch(0o600)
    host.vault().resume()
    assert mark(host.folder, NAME).exists() is not host.shared


def test_machines_with_different_session_keys_log_it_and_keep_their_own_grants(
    two: tuple[Host, Host], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = two
    b.sealing = Sealing(b"other" * 8, "logins")
    put(a.vault(), grant(1, "of a"))
    vault = b.vault()
    assert vault.read(NAME) is None
    assert "GREENCRAWL_SESSION_KEY alike" in capsys.readouterr().err
    made = grant(1, "of b")
    assert put(vault, made)
    assert vault.read(NAME) == made
    kept = a.vault().read(NAME)
    assert kept is not None
    assert kept.token["access_token"] == "of a"


def test_machines_without_a_common_key_keep_their_own_grants(
    tmp_path: Path, frontier: Shared
) -> None:
    a = Host(tmp_path / "a", frontier, shared=False)
    b = Host(tmp_path / "b", frontier, shared=True)
    put(a.vault(), grant(1, "of a"))
    assert b.vault().read(NAME) is None
    assert put(b.vault(), grant(1, "of b"))
    assert put(a.vault(), grant(2, "of a again"))
    kept = b.vault().read(NAME)
    assert kept is not None
    assert kept.token["access_token"] == "of b"


def test_a_sealed_grant_of_another_login_is_not_taken(
    two: tuple[Host, Host], frontier: Shared
) -> None:
    a, b = two
    put(a.vault(), grant())
    frontier.kept["else-000000000000"] = frontier.kept[NAME]
    assert b.vault().read("else-000000000000") is None


def test_a_grant_that_one_machine_forgets_is_forgotten_by_all_machines(
    two: tuple[Host, Host], frontier: Shared
) -> None:
    a, b = two
    put(a.vault(), grant())
    b.vault().read(NAME)
    claim = a.vault().claim(NAME)
    assert claim is not None
    with claim:
        assert claim.forget()
    assert not a.file.exists()
    assert a.vault().read(NAME) is None
    assert b.vault().read(NAME) is None
    assert not b.file.exists()
    made = grant(1, "after")
    assert put(b.vault(), made)
    assert a.vault().read(NAME) == made


def test_a_grant_made_without_a_frontier_is_put_into_it_later(
    tmp_path: Path, frontier: Shared
) -> None:
    folder = tmp_path / "logins"
    assert put(Host(folder, LocalClaims(), shared=True).vault(), grant())
    assert Host(folder, frontier, shared=True).vault().read(NAME) == grant()
    assert Host(tmp_path / "other", frontier, shared=True).vault().read(NAME) == grant()


# -- processes


def test_a_process_killed_while_it_writes_leaves_a_whole_file(tmp_path: Path) -> None:
    folder = tmp_path / "logins"
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from greencrawl.worker.auth.state.leases import LocalClaims\n"
        "from greencrawl.worker.auth.state.vault import Vault\n"
        "from greencrawl.worker.auth.base import Grant\n"
        f"vault = Vault(Path({str(folder)!r}), LocalClaims(), None)\n"
        "number = int(sys.argv[1])\n"
        "while True:\n"
        "    number += 1\n"
        f"    with vault.claim({NAME!r}) as claim:\n"
        "        claim.put(Grant(account='a' * 200_000, generation=number, made_ms=1))\n"
        "    print(number, flush=True)\n"
    )
    vault = Vault(folder, LocalClaims(), None)
    last = 0
    for kill_after in (1, 2, 3, 5, 8):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(last)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        assert writer.stdout is not None
        for _ in range(kill_after):
            last = int(writer.stdout.readline())
        time.sleep(0.0007 * kill_after)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        kept = vault.read(NAME)
        assert kept is not None
        assert kept.generation >= last, "what was put is there"
        last = kept.generation
    assert put(vault, Grant(account="x", generation=0, made_ms=1))
    assert len(list(folder.iterdir())) == 1, "what a dead writer left is gone"


def test_the_newest_grant_stays_after_many_processes_wrote_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "logins"
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from greencrawl.worker.auth.state.leases import LocalClaims\n"
        "from greencrawl.worker.auth.state.vault import Vault\n"
        "from greencrawl.worker.auth.base import Grant\n"
        f"vault = Vault(Path({str(folder)!r}), LocalClaims(), None)\n"
        "me = int(sys.argv[1])\nsys.stdin.readline()\n"
        "for turn in range(40):\n"
        "    grant = Grant(account=str(me), generation=1 + turn * 4 + me, made_ms=1)\n"
        f"    vault._files.save({NAME!r}, grant)\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(me)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        for me in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=60)[1] for writer in writers]
    assert said == [""] * 4
    kept = Vault(folder, LocalClaims(), None).read(NAME)
    assert kept is not None
    assert kept.generation == 160


def test_a_writer_goes_on_if_a_stopped_process_keeps_the_lock(
    tmp_path: Path, frontier: Shared, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    host = Host(tmp_path / "logins", frontier, shared=False)
    put(host.vault(), grant())
    monkeypatch.setattr("greencrawl.worker.auth.state.private_files.LOCK_SECONDS", 0.2)
    with _lock_held(host.folder):
        assert put(host.vault(), grant(2))
    assert "is locked by another process" in capsys.readouterr().err
    assert put(host.vault(), grant(3))
    kept = host.vault().read(NAME)
    assert kept is not None
    assert kept.generation >= 3


def test_no_repr_of_a_grant_shows_what_it_holds() -> None:
    assert SECRET not in repr(grant())
    assert SECRET not in repr(grant().cookies)


# -- names


def test_the_name_of_a_login_changes_with_its_entry_but_not_with_its_hosts() -> None:
    entry = auth.Form(name="shop", hosts=("a.example",), login_url="https://a.example/login")
    assert name_of(entry) == name_of(
        msgspec.structs.replace(entry, hosts=("b.example", "a.example"), skip=())
    )
    assert name_of(entry).startswith("shop-")
    assert len(name_of(entry)) == len("shop-") + 12
    others = [
        msgspec.structs.replace(entry, login_url="https://a.example/in"),
        msgspec.structs.replace(entry, fields={"remember": "1"}),
        auth.Basic(name="shop", hosts=("a.example",)),
        auth.Digest(name="shop", hosts=("a.example",)),
    ]
    assert len({name_of(one) for one in [entry, *others]}) == 5
    forth = auth.Form(name="s", hosts=("a",), login_url="u", fields={"a": "1", "b": "2"})
    back = auth.Form(name="s", hosts=("a",), login_url="u", fields={"b": "2", "a": "1"})
    assert name_of(forth) == name_of(back)


def _give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, 12345)


def _lock_held(folder: Path) -> subprocess.Popen[str]:
    program = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.readline()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "src"},
    )
