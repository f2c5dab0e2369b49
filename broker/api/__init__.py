"""The HTTP face: routes, messages, guard, problems, metrics, the OpenAPI document."""
