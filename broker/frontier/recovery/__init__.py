"""Gives a node what it lacks after a restart or an absence: windows, replays, debts."""
