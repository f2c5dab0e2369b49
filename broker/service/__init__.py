"""What handlers of the API use, beneath HTTP: seeding, batching, pages, hook refusals."""
