"""Members' pages in Chinese, Russian and Arabic; a link is enough to delete or to log out.

Each language has a list at ``/<language>/``, in an encoding of its own, and a page for each
article. Beside an article there are links that delete it. Some show that in the path, some in a
query in the page's encoding. The URLs of others show nothing, only their words do: their text, the
alternative text of an image, a title or an aria-label. The title of one article is the word for
deleting itself. Links that a script turns into something else lead to articles.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from django.contrib.auth import logout
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import escape

from tests.support.django_site.models import Article


class Tongue(NamedTuple):
    """The words of one language, and the encoding of its list."""

    encoding: str
    articles: str
    operation: str
    delete: str
    leave: str
    log_out: str
    edit: str
    about: str


TONGUES = {
    "zh": Tongue("gbk", "文章", "操作", "删除", "退出", "注销登录", "编辑", "如何删除文件"),
    "ru": Tongue(
        "windows-1251", "статьи", "действие", "удалить", "выход", "Выйти", "Править",
        "Выход из кризиса",
    ),
    "ar": Tongue(
        "utf-8", "مقالات", "عملية", "حذف", "خروج", "تسجيل الخروج", "تعديل", "حذف الملفات القديمة"
    ),
}  # fmt: skip

TITLED = 4
"""The title of this article is the word for deleting; the next one's title contains it."""


def _answer(title: str, body: str, encoding: str) -> HttpResponse:
    text = f"<!doctype html><title>{escape(title)}</title>{body}"
    return HttpResponse(text.encode(encoding), content_type=f"text/html; charset={encoding}")


def _leaving(language: str) -> str:
    said = TONGUES[language]
    return (
        f'<p><a href="/{language}/{said.leave}/">{said.leave}</a> '
        f'<a href="/{language}/bye">[{said.log_out}]</a></p>'
    )


def _titled(language: str, article: Article) -> str:
    said = TONGUES[language]
    names = {TITLED: said.delete, TITLED + 1: said.about}
    return names.get(article.pk, f"{said.articles} {article.pk}")


def everything(request: WSGIRequest, language: str) -> HttpResponse:
    """Return the list; if the query says so in the list's encoding, delete an article."""
    said = TONGUES[language]
    if not request.user.is_authenticated:
        return HttpResponseRedirect("/members/login")
    request.encoding = said.encoding
    if request.GET.get(said.operation) == said.delete:
        return _deleted(language, int(request.GET["id"]))
    rows = [
        f'<li><a href="/{language}/{said.articles}/{one.pk}/">{_titled(language, one)}</a> '
        f'<a href="/{language}/{said.articles}/{one.pk}/{said.delete}/">x</a> '
        f'<a href="?{said.operation}={said.delete}&amp;id={one.pk}"><img src="/x"></a> '
        f'<a href="/{language}/o/{one.pk}-{one.pk * 7919 % 1000:03}"><b>{said.delete}</b></a>'
        f'<a href="/{language}/{said.articles}/{one.pk}/" data-method="delete" data-confirm="?" '
        f'hx-delete="/{language}/{said.articles}/{one.pk}/">{said.delete}</a>'
        for one in Article.objects.all()
    ]
    return _answer(said.articles, _leaving(language) + f"<ul>{''.join(rows)}</ul>", said.encoding)


def one_article(request: WSGIRequest, language: str, number: int) -> HttpResponse:
    """Return an article with the links to its actions."""
    said = TONGUES[language]
    if not request.user.is_authenticated:
        return HttpResponseRedirect("/members/login")
    found = Article.objects.filter(pk=number).first()
    if found is None:
        return HttpResponse("gone", status=404)
    body = (
        f"{_leaving(language)}<h1>{_titled(language, found)}</h1>"
        f'<p><a href="{said.delete}/" title="{said.delete}"></a> '
        f'<a href="/{language}/o/e{number}">{said.edit}</a> '
        f'<a href="/{language}/o/{number}-000">{said.delete.title()}</a> '
        f'<a href="/{language}/{quote(said.articles)}/{number}/{quote(said.delete).lower()}/">x</a>'
        f'<a href="/{language}/o/{number}-001"><img src="/x" alt="{said.delete}"></a>'
        f'<a href="/{language}/o/{number}-002" aria-label="{said.delete}">x</a>'
        f'<a href="/{language}/o/{number}-003" title="{said.delete}"><svg></svg></a>'
        f'<a href="/{language}/o/{number}-004"><!-- --><span>🗑 {said.delete}</span></a></p>'
    )
    return _answer(_titled(language, found), body, "utf-8")


def delete(request: WSGIRequest, language: str, number: int) -> HttpResponse:
    """Delete by GET, which is wrong."""
    return _deleted(language, number if request.user.is_authenticated else 0)


def opaque(request: WSGIRequest, language: str, code: str) -> HttpResponse:
    """The URL does not show the action: a number and a dash delete."""
    number, dash, _ = code.partition("-")
    if dash:
        return delete(request, language, int(number))
    return _answer(
        "form", "<form method=get action=/members/logout><button>x</button></form>", "utf-8"
    )


def leave(request: WSGIRequest, language: str) -> HttpResponse:
    """Log out by GET."""
    logout(request)
    return HttpResponseRedirect(f"/{language}/")


def _deleted(language: str, number: int) -> HttpResponse:
    Article.objects.filter(pk=number).delete()
    return HttpResponseRedirect(f"/{language}/")


def patterns() -> list[URLPattern]:
    """Return the URL patterns."""
    found = []
    for language, said in TONGUES.items():
        given = {"language": language}
        found += [
            path(f"{language}/", everything, given),
            path(f"{language}/{said.articles}/<int:number>/", one_article, given),
            path(f"{language}/{said.articles}/<int:number>/{said.delete}/", delete, given),
            path(f"{language}/o/<code>", opaque, given),
            path(f"{language}/{said.leave}/", leave, given),
            path(f"{language}/bye", leave, given),
        ]
    return found
