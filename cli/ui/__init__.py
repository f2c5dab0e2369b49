"""What a person sees: progress, summaries, advice, text made safe for a terminal."""
