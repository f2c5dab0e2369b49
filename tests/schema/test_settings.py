"""Settings: read once, refused together, shown without secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import KEYS, Settings, changed, load, mask_url, masked


def test_defaults_need_no_environment() -> None:
    settings = load({"HOME": "/elsewhere", "PATH": "/bin"})
    assert settings.bind == ("127.0.0.1", 8765)
    assert settings.broker == ("http://127.0.0.1:8765",)
    assert settings.embedded_redis
    assert settings.data == Path("data").absolute()
    assert settings.redis_addresses == (f"unix://{settings.data}/redis/redis.sock",)
    assert settings.store_url == f"sqlite:///{settings.data}/content.sqlite"


def test_every_key_of_the_settings_has_a_field_and_every_field_a_key() -> None:
    assert {key.lower() for key in KEYS} | {"said"} == set(Settings.__dataclass_fields__)


def test_all_wrong_settings_are_named_at_once() -> None:
    environment = {
        "GREENCRAWL_PROCESES": "2",
        "GREENCRAWL_BIND": "nowhere",
        "GREENCRAWL_REDIS": "http://a",
        "GREENCRAWL_GREENLETS": "-1",
        "GREENCRAWL_ALLOW_NETWORKS": "10.0.0.0/99",
        "GREENCRAWL_TLS_CERT": "cert.pem",
    }
    with pytest.raises(InvalidConfig) as caught:
        load(environment)
    assert {field for field, _ in caught.value.problems} == set(environment)
    assert "unknown" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("GREENLETS", "many", "GREENCRAWL_GREENLETS: 'many': must be a whole number from 1 to"),
        ("GREENLETS", "1.5", "must be a whole number from 1 to 10000"),
        ("LEASE_SECONDS", "soon", "GREENCRAWL_LEASE_SECONDS: 'soon': must be a number from"),
    ],
)
def test_a_text_that_is_no_number_is_refused_with_the_allowed_ones(
    key: str, text: str, said: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load({f"GREENCRAWL_{key}": text})
    assert said in str(caught.value)


def test_the_message_about_a_long_value_is_short() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load({"GREENCRAWL_BIND": "x" * 100_000})
    assert 200 < len(str(caught.value)) < 400


def test_attempts_that_brought_a_page_cannot_be_kept_longer_than_all_attempts() -> None:
    for months, days in ((12, 366), (1, 31), (3, 36_500)):
        environment = {
            "GREENCRAWL_JOURNAL_MONTHS": str(months), "GREENCRAWL_JOURNAL_DAYS": str(days),
        }  # fmt: skip
        with pytest.raises(InvalidConfig) as caught:
            load(environment)
        ((field, said),) = caught.value.problems
        assert field == "GREENCRAWL_JOURNAL_DAYS"
        assert str(days) in said
        assert f"GREENCRAWL_JOURNAL_MONTHS={months}" in said
    with pytest.raises(InvalidConfig, match="GREENCRAWL_JOURNAL_MONTHS=12:"):
        load({"GREENCRAWL_JOURNAL_DAYS": "400"})
    for months, days in ((12, 365), (1, 30), (0, 36_500), (1200, 36_500), (1, 0)):
        load({}, journal_months=str(months), journal_days=str(days))


def test_a_renamed_variable_is_answered_with_its_new_name() -> None:
    with pytest.raises(InvalidConfig, match="LOG_DAYS: is called GREENCRAWL_JOURNAL_DAYS now"):
        load({"GREENCRAWL_LOG_DAYS": "30"})


def test_a_mistyped_variable_is_answered_with_the_similar_one() -> None:
    with pytest.raises(InvalidConfig, match=r"DTA: unknown .*did you mean GREENCRAWL_DATA"):
        load({"GREENCRAWL_DTA": "x"})
    with pytest.raises(InvalidConfig, match=r"unknown variable; docs/configuration.md lists all"):
        load({"GREENCRAWL_Q": "x"})


def test_an_override_wins_over_the_environment() -> None:
    settings = load({"GREENCRAWL_PROCESSES": "2"}, processes="3")
    assert settings.processes == 3


def test_lists_and_networks_are_split_at_commas() -> None:
    settings = load(
        {
            "GREENCRAWL_REDIS": "redis://a, redis://b",
            "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.1,10.0.0.0/8",
        }
    )
    assert settings.redis_addresses == ("redis://a", "redis://b")
    assert settings.allow_networks == (ip_network("127.0.0.1/32"), ip_network("10.0.0.0/8"))


def test_a_name_server_without_a_port_gets_port_53() -> None:
    given = "127.0.0.1:5353, 1.1.1.1,::1,[2606:4700::1111]:54"
    servers = load({"GREENCRAWL_DNS_SERVERS": given}).dns_servers
    assert servers == ("127.0.0.1:5353", "1.1.1.1:53", "[::1]:53", "[2606:4700::1111]:54")
    assert load({}).dns_servers == ()
    assert load({"GREENCRAWL_DNS_SERVERS": " System "}).dns_servers == ("system",)


@pytest.mark.parametrize(
    "given", ["ns.example", "1.1.1.1:0", "1.1.1.1:x", "1.1.1.1,1.1.1.1:53", "system,1.1.1.1"]
)
def test_a_text_that_is_no_name_server_is_refused(given: str) -> None:
    with pytest.raises(InvalidConfig, match="GREENCRAWL_DNS_SERVERS"):
        load({"GREENCRAWL_DNS_SERVERS": given})


def test_secrets_never_appear_in_logged_settings_or_error_messages() -> None:
    settings = load(
        {
            "GREENCRAWL_ADMIN_TOKEN": "s3cret-a",
            "GREENCRAWL_WORKER_TOKEN": "s3cret-w",
            "GREENCRAWL_STORE": "mysql://user:s3cret-m@m1,m2/db?replicas=r1",
            "GREENCRAWL_STORE_STEWARD": "steward:s3cret-s",
            "GREENCRAWL_REDIS": "redis://user:s3cret-r@db.example:6380/1",
            "GREENCRAWL_BIND": "0.0.0.0:80",
            "GREENCRAWL_ALERT": "https://s3cret:s3cret@hooks.example:8443/s3cret?s3cret#s3cret",
        }
    )
    shown = masked(settings)
    assert "s3cret" not in str(shown)
    assert shown["ALERT"] == "https://hooks.example:8443/***"
    assert shown["ADMIN_TOKEN"] == "***"
    assert shown["REDIS"] == "redis://user:***@db.example:6380/1"
    assert shown["BIND"] == "0.0.0.0:80"
    assert shown["STORE"] == "mysql://user:***@m1,m2/db?replicas=r1"
    with pytest.raises(InvalidConfig) as refused:
        load({"GREENCRAWL_STORE_STEWARD": "s3cret-without-a-user"})
    assert "s3cret" not in str(refused.value)
    for webhook in ("ftp://h/s3cret", "https:///s3cret", "http://h:x/s3cret", "http://h/s3cret x"):
        with pytest.raises(InvalidConfig, match="GREENCRAWL_ALERT") as refused:
            load({"GREENCRAWL_ALERT": webhook})
        assert "s3cret" not in str(refused.value)
    assert mask_url("redis://db.example") == "redis://db.example"
    assert mask_url("sqlite:////srv/a:b@c/x.sqlite") == "sqlite:////srv/a:b@c/x.sqlite"


def test_only_settings_that_differ_from_the_default_are_logged_at_the_start() -> None:
    assert changed(load({})) == {}
    given = {"GREENCRAWL_PROCESSES": "2", "GREENCRAWL_ADMIN_TOKEN": "s3cret-a"}
    assert changed(load({**given, "GREENCRAWL_GREENLETS": "300"})) == {
        "PROCESSES": "2",
        "ADMIN_TOKEN": "***",
    }


@pytest.mark.parametrize("password", ["s3/cret", "s3#cret", "s3?cret", "s3@cret", "s3:cret@/x"])
def test_a_password_that_is_not_percent_encoded_is_hidden_too(password: str) -> None:
    assert (
        mask_url(f"mysql://u:{password}@m1,m2:3307/db?lag=3") == "mysql://u:***@m1,m2:3307/db?lag=3"
    )
    assert mask_url(f"redis://:{password}@h:6379/0") == "redis://:***@h:6379/0"


def test_a_fault_point_kills_at_its_nth_pass_without_clean_up() -> None:
    ended = _run(
        "import atexit\nfrom greencrawl.schema import crash_points\n"
        "atexit.register(print, 'cleaned up')\n"
        "crash_points.arm('there:2')\ncrash_points.point('elsewhere')\ncrash_points.point('there')\n"
        "print('once', flush=True)\ncrash_points.point('there')\nprint('alive', flush=True)\n"
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == "once\n"


def test_passes_of_a_fault_point_count_only_while_its_file_exists(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    ended = _run(
        "from pathlib import Path\nfrom greencrawl.schema import crash_points\n"
        f"file = Path({str(file)!r})\n"
        "crash_points.arm(f'there:2@{file}')\ncrash_points.point('there')\ncrash_points.point('there')\n"
        "file.touch()\ncrash_points.point('there')\n"
        "print('once', flush=True)\ncrash_points.point('there')\nprint('alive', flush=True)\n"
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == "once\n"


def test_a_fault_point_that_notes_values_kills_no_process(tmp_path: Path) -> None:
    file = tmp_path / "noted"
    ended = _run(
        "from greencrawl.schema import crash_points\n"
        "crash_points.note('there', ['too soon'])\n"
        f"crash_points.arm('there>{file}')\ncrash_points.point('there')\n"
        "crash_points.note('elsewhere', ['no'])\ncrash_points.note('there', ['one', 'two'])\n"
    )
    assert ended.returncode == 0
    assert [line.partition("\t")[2] for line in file.read_text().splitlines()] == ["one", "two"]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "src"},
    )
