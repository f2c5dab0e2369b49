"""The operations of the HTTP API: each is a function of the service and the decoded request."""
