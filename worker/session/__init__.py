"""Host sessions: which are held, the visit that uses one, its pace, and waiting with patience."""
