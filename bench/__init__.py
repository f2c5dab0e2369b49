"""Benchmarks of the whole and of its parts. ``python -m bench`` runs them; results are in
``results/``, and are shown in docs/benchmarks.md.
"""
