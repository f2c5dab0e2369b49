"""The output for a person: progress, summaries, advice, text made safe for a terminal."""
