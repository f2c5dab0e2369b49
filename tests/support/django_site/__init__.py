"""A Django site as a process of its own: its admin, members' pages, an OAuth 2.0 provider, an API.

``rig.DjangoSite`` starts and queries it; the tests' own process imports nothing else of it. The
site's data are in its SQLite file, which the rig reads and changes as well: sessions are deleted
and tokens expire there. Every request is one line of the access log.
"""
