"""What the HTTP API and the Monitor share: whom they answer, what people write, what they do."""
