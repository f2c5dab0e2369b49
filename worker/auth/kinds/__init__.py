"""Kinds of authentication: one module for each, and the registry that makes kinds of entries."""
