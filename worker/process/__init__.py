"""Processes that may die: the supervisor, the reader of suspects, and the record of whom to
charge."""
