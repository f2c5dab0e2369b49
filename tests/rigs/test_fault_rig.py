"""The rig of ``make faults`` finds its errors: harm to nothing, loss, haste, an early end."""

from __future__ import annotations

import http.client
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.effort import by_night, cases
from tests.support.faultrig import Fault, Result, Rig, run
from tests.support.web import WebSpec

SMALL = WebSpec(hosts=20, pages=400)


def _run(folder: Path, inflict: object, **changes: object) -> Result:
    given: dict[str, object] = {"web": SMALL, "seeds": 20, "least_leases": 60, "done_seconds": 30}
    return run(Fault("", inflict, "", **given | changes), folder)  # type: ignore[arg-type]


def _one_blow(rig: Rig) -> None:
    with rig.blow("nothing happens"):
        pass


def test_a_run_without_harm_passes(tmp_path: Path) -> None:
    result = _run(tmp_path, _one_blow, refetched="none")
    assert result.why_not == []
    assert result.announced
    assert result.urls == SMALL.pages
    assert result.leases_out >= 60
    assert result.uncommitted > 0


def test_a_run_without_a_blow_fails(tmp_path: Path) -> None:
    result = _run(tmp_path, lambda rig: None, least_leases=1)
    assert "only 0 leases out when a blow fell" in result.why_not
    assert "no uncommitted work when a blow fell" in result.why_not


@by_night
def test_a_run_fails_if_no_leases_are_out_when_its_blow_falls(tmp_path: Path) -> None:
    def at_the_end(rig: Rig) -> None:
        rig.until_done()
        _one_blow(rig)

    result = _run(tmp_path, at_the_end)
    assert "only 0 leases out when a blow fell" in result.why_not


@by_night
def test_a_run_with_a_lost_page_fails_and_its_end_counts_as_early(tmp_path: Path) -> None:
    """The result of a crawler that forgets a page: the page's row is deleted."""

    def forget(rig: Rig) -> None:
        _one_blow(rig)
        rig.system.wait_done(30)
        with closing(sqlite3.connect(rig.folder / "data" / "content.sqlite")) as database:
            database.execute("DELETE FROM pages WHERE url = ?", [rig.web.url(SMALL.pages - 1)])
            database.commit()

    result = _run(tmp_path, forget)
    assert result.lost == 1
    assert any("announced early: 1 pages not stored" in finding for finding in result.why_not)


@by_night
def test_a_request_too_soon_after_the_end_is_found_by_three_judges(tmp_path: Path) -> None:
    """A second request comes after the end, so soon that it breaks the host's delay."""

    def ask_again(rig: Rig) -> None:
        _one_blow(rig)
        rig.until_done()
        address = rig.web.spec.addresses[0]
        client = http.client.HTTPConnection(address, rig.web.port)
        for _ in range(2):
            client.request("GET", "/p/0")
            client.getresponse().read()
        time.sleep(0.1)

    result = _run(tmp_path, ask_again, delay=0.1)
    assert result.impolite >= 1
    assert result.refetched == 2
    findings = "\n".join(result.why_not)
    assert "2 requests followed" in findings
    assert "refetched 2 times, allowed are" in findings
    assert "impolite" in findings


@pytest.mark.parametrize("part", cases(["worker"], ["broker"]))
def test_a_run_whose_end_is_never_announced_fails(tmp_path: Path, part: str) -> None:
    def stop(rig: Rig) -> None:
        with rig.blow(f"the {part} is gone for good"):
            rig.system.kill(part)

    result = _run(tmp_path, stop, done_seconds=3)
    assert not result.announced
    assert "the end was not announced within 3 s" in result.why_not
    assert result.lost > 0
