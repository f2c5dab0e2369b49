"""Text: encodings, patterns, JMESPath expressions, moments as people write them, settings' variables."""
