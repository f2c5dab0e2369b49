"""What handlers of the API work with, beneath HTTP: seeding, batching, pages, hook refusals."""
