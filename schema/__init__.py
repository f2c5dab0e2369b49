"""Records, settings, and what all packages share."""

if __name__ != "greencrawl.schema":
    raise ImportError("`schema` is called `greencrawl.schema` now: import that")
