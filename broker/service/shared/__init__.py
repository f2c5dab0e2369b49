"""Parts that the HTTP API and the Monitor share: parsing of queries, actions, counts."""
