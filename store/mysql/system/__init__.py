"""The tables that operators see and change: members and orders, a module each."""
