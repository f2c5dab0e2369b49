"""Sitemaps and feeds: which an origin has, what of an answer is one, and what it lists.

No I/O, and nothing of the other stages: ``greencrawl.worker.kernels.sitemap`` puts what is listed
to the link checker. See docs/discovery.md.

==============  ===========================================================
``origins``     the sitemaps of an origin, once a crawl
``forms``       what a body is: XML, a list of lines, or none of ours
``unpacking``   a body in slices of text: gzip and its encoding undone
``xml``         what an XML document lists, by its elements
``listed``      what a whole sitemap lists, read in steps and under bounds
==============  ===========================================================
"""
