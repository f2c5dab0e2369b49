"""Links beside those of the plain elements, and what a page needs to be shown.

``greencrawl.worker.extract.links`` reads the links of plain elements (``a``, ``frame`` …) in one
walk. This folder reads what few pages have, such as headers and documents in ``srcdoc``, and what a
crawl has to ask for. ``gather`` puts them together; docs/discovery.md has the table.
"""
