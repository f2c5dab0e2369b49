"""The import contracts in pyproject.toml: each is tested by breaking it."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import grimp
import pytest
from importlinter.application import use_cases
from importlinter.configuration import configure
from importlinter.domain.contract import Contract, registry

from tests.support.checkout import ROOT

SETTINGS = ROOT / "pyproject.toml"


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(
        "greencrawl",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


def contracts() -> list[Contract]:
    configure()
    options = use_cases.read_user_options(str(SETTINGS))
    use_cases._register_contract_types(options)
    return [
        registry.get_contract_class(one["type"])(one["name"], options.session_options, one)
        for one in options.contracts_options
    ]


def broken(graph: grimp.ImportGraph) -> set[str]:
    """Return the first words of the contracts that do not hold."""
    kept = {one.name: one.check(deepcopy(graph), verbose=False).kept for one in contracts()}
    return {name.split(":")[0] for name, holds in kept.items() if not holds}


def test_all_import_contracts_hold() -> None:
    assert broken(imports()) == set()


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("schema.net.urls", "store.base", "Layers"),
        ("store.rows", "broker.client", "Layers"),
        ("broker.service.seeding", "worker.retry", "Layers"),
        ("worker.engine", "cli.main", "Layers"),
        ("worker.engine", "broker.service.seeding", "A worker takes"),
        ("worker.delivery.writer", "broker.frontier.nodes.node", "A worker takes"),
        ("worker.link_checker", "broker.api.app", "A worker takes"),
        ("monitor.app", "broker.api.security", "A worker takes"),
        ("monitor.figures", "broker.frontier", "A worker takes"),
        ("monitor.app", "worker.retry", "Layers"),
        ("broker.api.app", "monitor.mount", "Only the broker"),
        ("broker.__main__", "monitor.app", "Only the broker"),
        ("worker.engine", "broker.loggers", "A worker takes"),
        ("worker.child", "broker.answers", "A worker takes"),
        ("worker.engine", "logger.archive", "Layers"),
        ("broker.loggers", "logger.finding", "Layers"),
        ("logger.app", "broker.service.service", "A worker takes"),
        ("logger.app", "broker.api.handlers.crawls", "A worker takes"),
        ("cli.main", "logger.archive", "Nobody"),
        ("logger.intake", "store.base", "A logger knows"),
        ("broker.frontier.scripts.calls", "broker.frontier.crawls", "Parts"),
        ("broker.frontier.hosts", "broker.frontier.recovery.opening", "Parts"),
        ("broker.frontier.scans", "broker.frontier.sessions", "Parts"),
        ("worker.http.client", "worker.extract.page", "Stages"),
        ("worker.link_checker", "worker.session.pace", "Stages"),
        ("broker.tasks.upkeep", "redis", "Redis"),
        ("broker.client", "redis", "Redis"),
        ("worker.child", "redis", "Redis"),
        ("store.base", "pymysql", "MySQL"),
        ("cli.admin.store", "pymysql", "MySQL"),
        ("worker.http.client", "lxml", "lxml"),
        ("broker.service.explain", "lxml", "lxml"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    importer: str, imported: str, contract: str
) -> None:
    graph = deepcopy(imports())
    ours = f"greencrawl.{imported}"
    graph.add_import(
        importer=f"greencrawl.{importer}", imported=ours if ours in graph.modules else imported
    )
    assert any(name.startswith(contract) for name in broken(graph))


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = imports()
    after: dict[str, set[str]] = {
        one: {
            two
            for two in graph.find_modules_directly_imported_by(one)
            if two.startswith("greencrawl") and not one.startswith(f"{two}.")
        }
        for one in graph.modules
        if one.startswith("greencrawl")
    }
    while leaves := {one for one, needs in after.items() if not needs}:
        after = {one: needs - leaves for one, needs in after.items() if one not in leaves}
    assert after == {}, f"in a circle, or before one: {sorted(after)}"
