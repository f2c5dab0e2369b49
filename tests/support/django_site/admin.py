"""The admin: a list in pages, and for each article its form and its history."""

from __future__ import annotations

from django.contrib import admin

from tests.support.django_site.models import Article


@admin.register(Article)
class ArticleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("title",)
    list_per_page = 25
    list_max_show_all = 0
    sortable_by = ()
