"""Sitemaps and feeds: those of an origin, their form, and the URLs that they list.

There is no I/O, and no other stage here: ``greencrawl.worker.kernels.sitemap`` gives the listed
URLs to the link checker. See docs/discovery.md.

==============  ===========================================================
``origins``     the sitemaps of an origin, once a crawl
``forms``       what a body is: XML, a list of lines, or neither
``unpacking``   a body in slices of text: gzip and its encoding undone
``xml``         what an XML document lists, by its elements
``listed``      what a whole sitemap lists, read in steps and under bounds
==============  ===========================================================
"""
