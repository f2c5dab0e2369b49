"""What the HTTP API and the Monitor share: what people ask for in words, and what they do."""
