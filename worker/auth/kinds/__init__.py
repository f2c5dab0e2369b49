"""Kinds of authentication: one module a kind, and the registry that makes kinds of entries."""
