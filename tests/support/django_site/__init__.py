"""A Django site as a process of its own: its admin, members' pages, an OAuth 2.0 provider, an API.

``rig.DjangoSite`` starts and questions it; nothing here is imported into the tests' own process
but that. What the site holds is its SQLite file, which the rig reads and changes as well: sessions
are killed and tokens expire there. Every request is one line of the access log.
"""
