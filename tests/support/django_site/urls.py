"""The URL patterns."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

from tests.support.django_site import tongues, views

urlpatterns = [
    path("", views.front),
    path("admin/", admin.site.urls),
    path("accounts/login/", LoginView.as_view()),
    path("members/", views.members),
    path("members/login", views.members_login),
    path("members/logout", views.members_logout),
    path("members/<int:number>", views.members),
    path("members/<int:number>/delete", views.members_delete),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    path("api/list", views.api_list),
    path("api/items/<int:number>", views.api_item),
    *tongues.patterns(),
]
