"""The admin: a list in pages, and a form and a history for each article."""

from __future__ import annotations

from django.contrib import admin

from tests.support.django_site.models import Article


@admin.register(Article)
class ArticleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("title",)
    list_per_page = 25
    list_max_show_all = 0
    sortable_by = ()
