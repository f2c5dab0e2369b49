"""The nemesis: a whole system, whatever can happen to it, and a checker that trusts none of it."""
