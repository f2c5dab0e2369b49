"""A real broker is fuzzed from its own OpenAPI document: it keeps the promises of the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from greencrawl.broker.api import openapi
from greencrawl.broker.api.app import HttpApp
from greencrawl.broker.api.operations import OPERATIONS, Operation
from greencrawl.broker.api.security import Guard
from greencrawl.broker.client import BrokerClient
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import Commit, CreateCrawl, StoredPage
from greencrawl.store import open_store
from tests.support.broker_process import BrokerProcess
from tests.support.checkout import ROOT
from tests.support.effort import examples
from tests.support.queue_double import QueueDouble

EXAMPLES = examples(6, 200)
FUZZED = [operation for operation in OPERATIONS if operation.method != "DELETE"]
TOKEN = "admin-secret"

LONGEST_QUERY = 6000
"""For a request line beyond 8 KiB the server itself answers 414, whatever else is wrong."""

PAGE = StoredPage(
    crawl=1, fingerprint=-1, url="https://a.example/", status=200, body=b"<p>Hi", text="Hi"
)
GIVEN = {"crawl": "kept", "host": "a.example", "id": PAGE.id}
"""Path parameters that exist; without them nearly every answer would be a 404."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, worker_token="worker-secret", admin_token=TOKEN).start()
    process.client().put_crawl(CreateCrawl(name="kept", seeds=("https://a.example/",)))
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    store.commit(Commit([PAGE]))
    store.close()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> BrokerClient:
    return broker.client()


@pytest.fixture(scope="module")
def document(broker: BrokerProcess) -> Any:
    loaded = schemathesis.openapi.from_url(f"{broker.url}/openapi.json")

    @loaded.hook
    def map_path_parameters(_context: object, parameters: Any) -> Any:
        known = {name: GIVEN[name] for name in parameters or {} if name in GIVEN}
        even = sum(len(str(value)) for value in (parameters or {}).values()) % 2 == 0
        return known if known and even else parameters

    return loaded


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", FUZZED, ids=lambda operation: operation.name)
def test_every_operation_keeps_its_contract(
    document: Any, client: BrokerClient, operation: Operation, mode: GenerationMode
) -> None:
    described = document[operation.path][operation.method]
    if mode is GenerationMode.NEGATIVE and not _takes_anything(described):
        pytest.skip("nothing to send wrongly")

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=described.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        assume(len(urlencode(case.query or {}, doseq=True)) < LONGEST_QUERY)
        if operation.name in ("lease", "follow_orders") and mode is GenerationMode.POSITIVE:
            case.body["wait"] = 0.01
        # A schema cannot say that a regular expression must compile or that slots need delay 0.
        case.call_and_validate(
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=20,
            excluded_checks=[positive_data_acceptance],
        )

    fuzz()
    assert client.crawl("kept").name == "kept"  # it lives, whatever was sent


def _takes_anything(described: Any) -> bool:
    return bool(list(described.query) or described.body)


def test_deleting_a_crawl_keeps_its_contract(client: BrokerClient, document: Any) -> None:
    client.put_crawl(CreateCrawl(name="short"))
    operation = document["/v1/crawls/{crawl}"]["DELETE"]
    for status in (202, 404):
        case = operation.Case(path_parameters={"crawl": "short" if status == 202 else "never"})
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        assert response.status_code == status
        case.validate_response(response, excluded_checks=[positive_data_acceptance])


def test_the_openapi_document_names_exactly_the_routes_of_the_broker(tmp_path: Any) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    http_app = HttpApp(Service(QueueDouble(), store), Guard("", ""))
    written = json.loads(openapi.document(http_app.operations))
    named = {(m.upper(), path) for path, methods in written["paths"].items() for m in methods}
    assert named == {(operation.method, operation.path) for operation in http_app.operations}
    for methods in written["paths"].values():
        for described in methods.values():
            assert described["summary"].endswith((".", "?"))
            assert "503" in described["responses"]
    store.close()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_protocols_page_describes_every_operation(operation: Operation) -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert f"**`{operation.method} {operation.path}" in page
