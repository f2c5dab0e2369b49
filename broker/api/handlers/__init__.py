"""What each operation of the HTTP API does: a function of the service and what was decoded."""
