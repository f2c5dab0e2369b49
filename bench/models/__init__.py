"""Greenlets and threads compared in the same crawler, as in a published study."""
