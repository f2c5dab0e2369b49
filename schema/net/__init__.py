"""URLs, origins, public suffixes, scope, requests, and checks of a crawl's logins and sources."""
