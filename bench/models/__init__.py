"""Greenlets and threads compared in the same crawler, after source A."""
