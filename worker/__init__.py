"""The worker: fetches, reads and stores pages."""

if __name__ != "greencrawl.worker":
    raise ImportError("`worker` is called `greencrawl.worker` now: import that")
