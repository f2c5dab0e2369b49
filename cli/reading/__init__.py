"""Commands that read pages or logs, and show their contents."""
