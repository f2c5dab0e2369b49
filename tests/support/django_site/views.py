"""The members' pages, which answer strangers with 200 and a login form, and the API."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.core.handlers.wsgi import WSGIRequest
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404, render
from oauth2_provider.decorators import protected_resource_metadata

from tests.support.django_site.models import Article

PER_PAGE = 20


def front(request: WSGIRequest) -> HttpResponse:
    """Return the public page."""
    return HttpResponse('<title>Front</title><a href="/members/">Members</a>')


def members(request: WSGIRequest, number: int = 0) -> HttpResponse:
    """Return all articles or one of them to members, and the login form, with status 200, to
    others."""
    if not request.user.is_authenticated:
        return _login_form(request, request.get_full_path())
    if not number:
        return render(request, "members.html", {"articles": Article.objects.all()})
    article = get_object_or_404(Article, pk=number)
    return render(
        request, "article.html", {"article": article, "foreign": settings.SITE["foreign"]}
    )


def members_login(request: WSGIRequest) -> HttpResponse:
    """Return the site's own login form, with a hidden field beside the token, and a checkbox."""
    if request.method != "POST":
        return _login_form(request, request.GET.get("next", "/members/"))
    if request.POST.get("came") != "from the form":
        return HttpResponse("The form's hidden field is missing", status=400)
    user = authenticate(
        request, username=request.POST.get("account"), password=request.POST.get("secret")
    )
    if user is None:
        return _login_form(request, request.POST.get("next", ""), "Name or password is wrong.")
    login(request, user)
    request.session.set_expiry(settings.SITE["session_seconds"])
    return HttpResponseRedirect(request.POST.get("next") or "/members/")


def members_logout(request: WSGIRequest) -> HttpResponse:
    """Log out by GET, as many sites do: a crawler that follows every link ends its session here."""
    logout(request)
    return HttpResponse("<title>Good-bye</title>You are out.")


def members_delete(request: WSGIRequest, number: int) -> HttpResponse:
    """Delete by GET, which is wrong: a crawler that follows every link empties the site."""
    if request.user.is_authenticated:
        Article.objects.filter(pk=number).delete()
    return HttpResponseRedirect("/members/")


@protected_resource_metadata(scopes=["read"])
def api_list(request: WSGIRequest) -> HttpResponse:
    """Return ``{"data": [{"id", "href"}, …], "meta": {"next": CURSOR or null}}``, by
    ``?cursor=``."""
    begin = int(request.GET.get("cursor") or 0)
    found = list(Article.objects.order_by("pk")[begin : begin + PER_PAGE + 1])
    data = [{"id": one.pk, "href": _href(one.pk)} for one in found[:PER_PAGE]]
    following = str(begin + PER_PAGE) if len(found) > PER_PAGE else None
    return _json(request, {"data": data, "meta": {"next": following}})


@protected_resource_metadata(scopes=["read"])
def api_item(request: WSGIRequest, number: int) -> HttpResponse:
    """Return one article as JSON."""
    article = Article.objects.filter(pk=number).first()
    if article is None:
        raise Http404
    return _json(request, {"id": article.pk, "title": article.title, "text": article.text})


def _href(number: int) -> str:
    path, there = f"/api/items/{number}", settings.SITE["item_addresses"]
    return f"http://{there[number % len(there)]}:{settings.SITE['port']}{path}" if there else path


def _json(request: WSGIRequest, content: dict[str, Any]) -> HttpResponse:
    owner = getattr(request, "resource_owner", None)
    request.who = owner.get_username() if owner else "machine"  # type: ignore[attr-defined]
    return JsonResponse(content)


def _login_form(request: WSGIRequest, following: str, problem: str = "") -> HttpResponse:
    return render(request, "members_login.html", {"next": following, "problem": problem})
