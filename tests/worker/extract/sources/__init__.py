"""Tests of the link sources beside plain links."""
