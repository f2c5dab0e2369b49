"""Host sessions: those that are held, the visit that uses one, its pace, and its waits."""
