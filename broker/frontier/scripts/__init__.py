"""Calls of the Lua scripts: their arguments, and their replies."""
