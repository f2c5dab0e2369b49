"""What brokers agree on over Redis and the store: duties, fence, activity, quotas, wake-ups."""
