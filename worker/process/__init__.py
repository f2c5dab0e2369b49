"""Processes that may die: who starts them, who reads suspects, and what tells whom to charge."""
