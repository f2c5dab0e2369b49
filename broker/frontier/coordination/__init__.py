"""What brokers agree on over Redis and the store: duties, fence, news, quotas, wake-ups."""
