"""The broker: the frontier's HTTP API."""

if __name__ != "greencrawl.broker":
    raise ImportError("`broker` is called `greencrawl.broker` now: import that")
