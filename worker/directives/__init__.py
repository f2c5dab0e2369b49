"""Whose content is kept: what follows from what pages say about their use, and of copies."""
