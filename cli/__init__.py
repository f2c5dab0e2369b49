"""The command ``greencrawl``."""

if __name__ != "greencrawl.cli":
    raise ImportError("`cli` is called `greencrawl.cli` now: import that")
