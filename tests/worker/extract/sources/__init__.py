"""Tests of where links come from beside the plain ones."""
