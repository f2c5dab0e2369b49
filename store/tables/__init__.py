"""Tables that both stores have: each statement is written once, see ``sql.py``."""
