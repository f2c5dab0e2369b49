"""What the site holds."""

from __future__ import annotations

from django.db import models


class Article(models.Model):
    """Shown by the admin, to members, and by the API."""

    title = models.CharField(max_length=80)
    text = models.TextField()

    def __str__(self) -> str:
        return self.title
