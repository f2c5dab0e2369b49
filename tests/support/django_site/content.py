"""The content of the database when the site starts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from oauth2_provider.models import Application

from tests.support.django_site.models import Article


def fill(given: dict[str, Any]) -> None:
    """Create the user, who may see and change articles in the admin, the articles, and two
    clients."""
    user = User.objects.create_user(given["username"], "", given["password"], is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=("view_article", "change_article", "delete_article"))
    )
    Article.objects.bulk_create(
        Article(title=f"Article {n}", text=f"Only for members: text {n}.")
        for n in range(1, given["articles"] + 1)
    )
    Application.objects.create(
        name="machine",
        client_id=given["machine_id"],
        client_secret=given["machine_secret"],
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_CLIENT_CREDENTIALS,
    )
    Application.objects.create(
        name="person",
        client_id=given["person_id"],
        client_secret=given["person_secret"],
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE,
        redirect_uris="http://127.0.0.1/ http://127.0.0.1/callback http://localhost/",
        skip_authorization=False,
    )
