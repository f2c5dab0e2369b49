"""The state that brokers share over Redis and the store: duties, fence, activity, quotas,
wake-ups."""
