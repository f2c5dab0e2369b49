"""Records, settings, and what all rooms share."""

if __name__ != "greencrawl.schema":
    raise ImportError("`schema` is called `greencrawl.schema` now: import that")
