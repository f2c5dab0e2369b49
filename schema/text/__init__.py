"""Text: encodings, patterns, JMESPath expressions, moments, the variables of settings."""
