"""Benchmarks of the whole system and of its parts.

``python -m bench`` runs them; results are in ``results/``, and docs/benchmarks.md shows them.
"""
