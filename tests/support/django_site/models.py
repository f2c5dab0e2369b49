"""The models of the site."""

from __future__ import annotations

from django.db import models


class Article(models.Model):
    """An article: the admin, the members' pages and the API show it."""

    title = models.CharField(max_length=80)
    text = models.TextField()

    def __str__(self) -> str:
        return self.title
