"""Parts for the API's handlers, below HTTP: seeding, batching, pages, hook refusals."""
