"""Messages for connections that cannot be opened for a reason of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.store.mysql.cluster.topology import parse
from greencrawl.store.mysql.connection import connect


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_read_is_a_wrong_setting(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    topology = parse(f"mysql://u:s3cret@127.0.0.1:1/db?ca={file}")
    with pytest.raises(InvalidConfig, match=r"ca\.pem") as refused:
        connect(topology, topology.masters[0])
    assert "s3cret" not in str(refused.value)
