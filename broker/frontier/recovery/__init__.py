"""How a node is given what it lacks after a restart or an absence: windows, replays, debts."""
