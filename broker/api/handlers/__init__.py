"""The operations of the HTTP API: for each a function of the service and the decoded request."""
