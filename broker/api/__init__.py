"""The HTTP API: routes, messages, guard, problems, metrics, the OpenAPI document."""
