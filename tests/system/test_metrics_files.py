"""The alerts, the board and the example for Prometheus, checked by its own tools."""

from __future__ import annotations

import json
import re

import yaml

from tests.support.prometheus import BOARD, FOLDER, alerts, board_queries, names, needs_promtool
from tests.support.prometheus import promtool as run


@needs_promtool
def test_promtool_accepts_the_example_and_its_rules() -> None:
    assert "is valid prometheus config file syntax" in run(
        "check", "config", str(FOLDER / "prometheus.yml")
    )
    assert f"{len(alerts())} rules found" in run("check", "rules", str(FOLDER / "rules.yml"))


@needs_promtool
def test_each_alert_fires_for_its_cause_and_ends_without_it() -> None:
    assert "SUCCESS" in run("test", "rules", "rules_test.yml", cwd=FOLDER)


def test_each_alert_has_a_rule_test_and_says_what_to_do() -> None:
    tried = yaml.safe_load((FOLDER / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tried for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fired == quiet == set(alerts())
    for rule in alerts().values():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "do"}
        assert rule["annotations"]["do"].endswith(".")


def test_the_panels_and_variables_of_the_dashboard_are_consistent() -> None:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(board_queries()) > 40
    taken = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(taken)) == len(taken)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    variables = {one["name"] for one in board["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used == variables


def test_names_of_metrics_are_found_in_expressions() -> None:
    found = names(
        'sum by (greencrawl_x) (rate(greencrawl_a_total{k="greencrawl_b"}[5m])) > process_c'
    )
    assert found == {"greencrawl_a_total", "process_c"}
