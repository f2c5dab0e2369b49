"""Benchmarks of the store alone: commits a second, growth over years and crawls, a million
pages."""
