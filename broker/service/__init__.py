"""What the API's handlers use, below HTTP: seeding, batching, pages, hook refusals."""
