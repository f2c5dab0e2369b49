"""Sealing, and the key of a host: it is private, made once, and replaced when it is bad."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from greencrawl.schema import settings
from greencrawl.schema.errors import GreencrawlError
from greencrawl.worker.auth.state.sealing import Unsealable, host_key, sealing

KEY = "k" * 44


def configured(folder: Path, key: str = "") -> settings.Settings:
    return settings.load({"GREENCRAWL_DATA": str(folder), "GREENCRAWL_SESSION_KEY": key})


def test_sealed_text_is_unreadable_and_opens_with_the_same_key_only(tmp_path: Path) -> None:
    one = sealing(configured(tmp_path, KEY), "logins")
    sealed = one.seal(b"cookie=secret")
    assert b"secret" not in sealed
    assert sealing(configured(tmp_path / "elsewhere", KEY), "logins").unseal(sealed)
    for other in (
        sealing(configured(tmp_path, KEY + "x"), "logins"),
        sealing(configured(tmp_path, KEY), "errands"),
    ):
        with pytest.raises(Unsealable):
            other.unseal(sealed)
    for damaged in (b"", b"\xff", sealed[:-1], sealed[:-9] + b"A" * 9, b"local:"):
        with pytest.raises(Unsealable) as caught:
            one.unseal(damaged)
        assert caught.value.__cause__ is None
    assert not (tmp_path / "logins").exists()
    assert "k" * 3 not in repr(one)


def test_processes_of_one_machine_share_a_key_if_none_is_configured(tmp_path: Path) -> None:
    sealed = sealing(configured(tmp_path), "errands").seal(b"x")
    assert sealing(configured(tmp_path), "errands").unseal(sealed) == b"x"
    file = tmp_path / "logins" / "key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with pytest.raises(Unsealable):
        sealing(configured(tmp_path / "other"), "errands").unseal(sealed)


def test_many_processes_at_once_make_one_key(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from greencrawl.worker.auth.state.sealing import host_key\n"
        "sys.stdin.readline()\nprint(host_key(Path(sys.argv[1])).hex())\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "logins")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        for _ in range(6)
    ]
    keys = [process.communicate("\n", 60)[0].strip() for process in running]
    assert len(set(keys)) == 1
    assert len(bytes.fromhex(keys[0])) == 32
    assert [path.name for path in (tmp_path / "logins").iterdir()] == ["key"]


@pytest.mark.parametrize("what", ["short", "open", "link", "foreign"])
def test_a_key_that_is_no_good_is_replaced(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logins"
    old = host_key(folder)
    file = folder / "key"
    if what == "short":
        file.write_bytes(b"x" * 31)
    elif what == "open":
        file.chmod(0o644)
    elif what == "link":
        file.rename(tmp_path / "key")
        file.symlink_to(tmp_path / "key")
    else:
        _give_away(file)
    fresh = host_key(folder)
    assert fresh != old
    assert len(fresh) == 32
    assert host_key(folder) == fresh
    assert "key_replaced" in capsys.readouterr().err
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600


def test_a_key_folder_open_to_others_is_closed_and_one_of_another_user_is_refused(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logins"
    folder.mkdir(mode=0o755)
    host_key(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    plain = tmp_path / "file"
    plain.touch()
    with pytest.raises(GreencrawlError, match="is no folder"):
        host_key(plain)
    _give_away(folder)
    with pytest.raises(GreencrawlError, match="another user"):
        host_key(folder)


def test_a_key_that_cannot_be_written_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GreencrawlError, match=r"cannot be kept in .*file/logins: "):
        host_key(tmp_path / "file" / "logins")


def test_a_process_uses_its_own_key_if_the_key_cannot_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logins").touch()
    one = sealing(configured(tmp_path), "errands")
    assert one.unseal(one.seal(b"x")) == b"x"
    said = capsys.readouterr().err
    assert "is no folder" in said
    assert "GREENCRAWL_SESSION_KEY" in said


def _give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, 12345)
