"""Links beside those of the plain elements, and what a page needs to be shown.

The plain ones (``a``, ``frame`` …) are read by ``greencrawl.worker.extract.links``, in one walk.
This folder reads what few pages have: headers, documents in ``srcdoc``; and what a crawl has to ask
for. ``gather`` puts them together; docs/discovery.md has the table.
"""
