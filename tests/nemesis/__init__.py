"""The nemesis: a whole system, everything that can happen to it, and a checker that trusts no part
of it."""
