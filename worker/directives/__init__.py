"""Whose content is kept: what follows from pages' directives, and from copies."""
