"""The worker: fetches, reads and stores pages.

============  =====================================================================================
``process``   processes that may die: supervisor, crash record, and the reader of suspects
``session``   host sessions: which are held, the visit that uses one, its pace
``http``      requests and answers on the wire
``robots``    robots.txt and tdmrep.json
``auth``      what a request carries to prove who is asking
``extract``   from the bytes of a page to title, text, language and links
``sitemaps``  which sitemaps an origin has, and what one lists
``directives``  which pages keep their content, by what they say about their use
``traps``     shapes of URLs that bring nothing new
``kernels``   how a URL is fetched, and how its answer is read
``orders``    orders for a running worker: received, kept and followed
``metrics``   counters that the supervisor shares, and the process that serves them
``delivery``  results on their way to store, frontier and broker
============  =====================================================================================

Modules that use several of these packages are in this folder: ``child`` builds the parts of a
process, ``engine`` leases sessions, ``pipeline`` brings each task through the stages.
"""

if __name__ != "greencrawl.worker":
    raise ImportError("`worker` is called `greencrawl.worker` now: import that")
