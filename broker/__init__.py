"""The broker: the queue, reached over HTTP."""

if __name__ != "greencrawl.broker":
    raise ImportError("`broker` is called `greencrawl.broker` now: import that")
