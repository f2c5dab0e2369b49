"""The options in ``my.cnf``: for any server, for one of a ring, for its masters and its
replicas."""

from __future__ import annotations

from collections.abc import Mapping

Options = Mapping[str, str]

PLAIN: Options = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "64M",
    "max-allowed-packet": "64M",
    "performance-schema": "OFF",
}
"""Options of a small server that accepts the packets of a large page."""

LOGGED: Options = {
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "sync-binlog": "1",
    "gtid-strict-mode": "ON",
    "log-slave-updates": "ON",
    "slave-parallel-threads": "8",
    "slave-net-timeout": "4",
    "read-only": "ON",
    "expire-logs-days": "3",
}
"""Options of every server of a ring.

Such a server writes what it copies into its own log, and takes no writes until it is opened.
"""

MASTER: Options = {
    **LOGGED,
    "innodb-flush-log-at-trx-commit": "3",
    "rpl-semi-sync-master-enabled": "ON",
    "rpl-semi-sync-master-wait-point": "AFTER_SYNC",
    "rpl-semi-sync-master-wait-no-slave": "ON",
    "rpl-semi-sync-master-timeout": "4294967295",
    "rpl-semi-sync-slave-enabled": "ON",
    "skip-slave-start": "ON",
    "init-rpl-role": "SLAVE",
}
"""Options of a master.

A commit waits in the log until the other master has it, however long that takes. A master that was
killed meanwhile starts again and rolls back what only its own log has. So the engine must have on
disk what was acknowledged (``flush-log…=3``).
"""

REPLICA: Options = {**LOGGED, "innodb-flush-log-at-trx-commit": "1"}
