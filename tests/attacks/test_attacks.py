"""Each attack in the short form: good hosts are crawled to the end, and the reason is named.

All tests share one system of real processes; nothing here depends on ratios of time.
``tests/guards/attacks.toml`` has each guard that a row tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.attacks.rows import ATTACKS, Attack
from tests.attacks.servers import GOOD_ZONE, Hosts, good
from tests.support.dns_server import DnsServer
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until
from tests.worker.session.test_shares import busiest

GREENLETS, FEW = 16, 8
GOOD_HOSTS, PAGES = 3, 8
SECONDS = 8.0
"""The longest wait for anything that usually takes a second or two."""


@contextmanager
def running(folder: Path, greenlets: int, **settings: str) -> Iterator[System]:
    """A system of its own, which is killed at the end: so nobody waits for silent hosts."""
    redis = RedisServer(folder / "redis").start()
    zones = {zone: how for one in ATTACKS.values() for zone, how in one.zones.items()}
    settings["greenlets"] = str(greenlets)
    try:
        with (
            DnsServer({**GOOD_ZONE, **zones}) as names,
            System(folder, [redis.url], dns_servers=names.address, **settings) as system,
        ):
            yield system.start()
            system.kill("worker")
            system.kill("broker")
    finally:
        redis.stop()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("attacks"), GREENLETS, request_seconds="2") as system:
        yield system


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[System]:
    """A system with the default time for a request, and few greenlets."""
    with running(tmp_path, FEW) as system:
        yield system


class Row:
    """A crawl with the name of an attack; it has the hosts of the attack, and good hosts."""

    def __init__(self, system: System, attack: Attack, bad: Hosts, friendly: Hosts) -> None:
        self.system = system
        self.attack = attack
        self.bad = bad
        self.friendly = friendly
        self.seeds = attack.seeds(bad.ports, short=True)
        names = [f"127.2.{attack.net}.{n + 1}" for n in range(GOOD_HOSTS)]
        if attack.zones:
            names = [f"g{n + attack.net % 5 * 3}.good.test" for n in range(GOOD_HOSTS)]
        self.good = [f"http://{name}:{friendly.port}/0" for name in names]

    def begin(self, *seeds: str) -> None:
        """Start the crawl of the good and the bad hosts."""
        options = {"delay": 0, "scope": "any", **self.attack.options}
        self.system.crawl(seeds, self.attack.name, **options)

    def good_end(self, seconds: float = SECONDS) -> None:
        """Wait until each page of the good hosts was requested, after its robots.txt."""
        every = GOOD_HOSTS * (PAGES + 1)
        wait_until(
            lambda: sum(self.friendly.asked.values()) >= every, seconds, "good hosts are fetched"
        )

    def is_said(self, seconds: float = SECONDS) -> None:
        """Wait until ``explain`` and the summary say what happened with the attackers."""
        wait_until(self._explained, seconds, f"explain says {self.attack.said}", 0.05)
        wait_until(self._counted, seconds, f"the summary counts {self.attack.kinds}", 0.05)

    def _explained(self) -> bool:
        said = "".join(
            str(self.system.call("GET", f"/v1/urls?url={url}"))
            for url in self.seeds[:: len(self.seeds) // 16 + 1]
        )
        return re.search(self.attack.said, said) is not None

    def _counted(self) -> bool:
        stats = self.system.stats(self.attack.name)
        return not (stats["failures"] | stats["put_off"]).keys().isdisjoint(self.attack.kinds)


@contextmanager
def attacked(system: System, name: str) -> Iterator[Row]:
    """Yield a row whose good and bad hosts are served; then delete its crawl, which frees the
    greenlets."""
    attack = ATTACKS[name]
    with Hosts(good(PAGES)) as friendly, attack.serve(short=True) as bad:
        try:
            yield Row(system, attack, bad, friendly)
        finally:
            with suppress(OSError):
                system.call("DELETE", f"/v1/crawls/{name}")


def peak_bytes(system: System) -> int:
    """Return the most memory of the worker's child."""
    status = open(f"/proc/{system.children()[0].pid}/status").read()  # noqa: SIM115
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def go_by(system: System, name: str) -> None:
    """Check that the good hosts are crawled to the end, and that the fate of the others is
    reported."""
    with attacked(system, name) as row:
        row.begin(*row.seeds, *row.good)
        row.good_end()
        row.is_said()


# --- time ------------------------------------------------------------------------------------


def test_a_tls_handshake_of_a_byte_at_a_time_is_cut_off_at_its_deadline(system: System) -> None:
    go_by(system, "handshake")


def test_a_request_with_endless_interim_answers_ends_at_its_deadline(system: System) -> None:
    go_by(system, "interim")


# --- CPU -------------------------------------------------------------------------------------


def test_a_page_compressed_to_a_hundred_bytes_is_read_in_a_process_of_its_own(
    system: System,
) -> None:
    child = system.children()[0]
    assert child.children() == [], "nothing was before"
    with attacked(system, "next-to-nothing") as row:
        row.begin(*row.seeds, *row.good)
        row.good_end()
        wait_until(lambda: child.children(), SECONDS, "it is read alone")
        row.is_said()


def test_good_hosts_are_crawled_beside_a_page_with_150000_attributes(system: System) -> None:
    go_by(system, "attributes")


def test_good_hosts_are_crawled_beside_pages_full_of_stray_end_tags(system: System) -> None:
    go_by(system, "end-tags")


def test_good_hosts_are_crawled_beside_pages_that_cost_a_second_of_cpu(system: System) -> None:
    go_by(system, "costly")


# --- robots.txt ------------------------------------------------------------------------------


def test_robots_rules_with_many_wildcards_are_matched_up_to_a_limit(system: System) -> None:
    go_by(system, "wildcards")


def test_an_endless_robots_txt_is_given_up(system: System) -> None:
    go_by(system, "endless-robots")


# --- memory ----------------------------------------------------------------------------------


def test_unfinished_bodies_of_10_mib_do_not_fill_the_workers_memory(patient: System) -> None:
    with attacked(patient, "almost-10-mib") as row:
        row.begin(*row.seeds, *row.good)
        row.good_end()
        row.is_said()
        assert peak_bytes(patient) < 150e6


def test_an_element_tree_that_is_too_large_is_built_in_another_process(system: System) -> None:
    go_by(system, "trees")
    assert peak_bytes(system) < 150e6


def test_a_body_in_chunks_of_one_byte_is_not_read_to_its_end(system: System) -> None:
    go_by(system, "tiny-chunks")


# --- names -----------------------------------------------------------------------------------


def test_many_hosts_of_one_address_share_its_request_rate(system: System) -> None:
    with attacked(system, "farm") as row:
        row.begin(*row.seeds)
        system.crawl(row.good, "beside", delay=0, scope="any")
        row.good_end()
        row.is_said()
        wait_until(lambda: len(row.bad.arrivals) > 15, SECONDS, "it is asked")
        assert busiest(sorted(row.bad.arrivals), 0.98) <= 10
        system.call("DELETE", "/v1/crawls/beside")


def test_an_endless_chain_of_redirects_between_hosts_ends(system: System) -> None:
    go_by(system, "redirects")


# --- look-ups --------------------------------------------------------------------------------


def test_lookups_in_one_slow_dns_zone_do_not_delay_other_hosts(system: System) -> None:
    go_by(system, "slow-zone")


def test_lookups_in_many_slow_dns_zones_do_not_delay_other_hosts(system: System) -> None:
    go_by(system, "slow-zones")


# --- slots -----------------------------------------------------------------------------------


def good_ones_get_slots(system: System, name: str) -> None:
    """Check that known good hosts are fetched, and that hosts without room are rejected."""
    with attacked(system, name) as row:
        row.begin(*[url.replace("/0", "/7") for url in row.good])
        wait_until(lambda: sum(row.friendly.asked.values()) == 2 * GOOD_HOSTS, SECONDS, "known")
        system.call("POST", f"/v1/crawls/{name}/urls", {"urls": row.seeds})
        wait_until(lambda: row.bad.connections >= FEW, SECONDS, "all are at it")
        system.call("POST", f"/v1/crawls/{name}/urls", {"urls": row.good})
        row.good_end()
        assert row.bad.connections <= 3 * FEW
        row.is_said()


def test_silent_hosts_leave_greenlets_to_good_hosts(patient: System) -> None:
    good_ones_get_slots(patient, "silent")


def test_hosts_that_answer_just_in_time_leave_greenlets_to_good_hosts(patient: System) -> None:
    good_ones_get_slots(patient, "just-in-time")
