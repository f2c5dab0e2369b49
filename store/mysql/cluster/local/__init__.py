"""Real MariaDB servers on loopback, for ``make cluster`` and tests."""
