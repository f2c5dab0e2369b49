"""Finds the encoding of a page: by its declaration, or by its bytes."""
