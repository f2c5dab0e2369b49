"""Greenlets and threads under the same crawler, after source A."""
