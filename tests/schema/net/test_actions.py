"""Words and URLs by which links are recognised that log out or change something; and harmless
ones."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from greencrawl.schema.net import action_texts
from greencrawl.schema.net.action_data import KINDS, Action, Language, languages, software
from greencrawl.schema.net.action_texts import MAX_TEXT, texts_of, trimmed
from greencrawl.schema.net.actions import by_url

H = "https://h.example"


def by_texts(urls: list[str], said: list[str], page: str = "") -> dict[str, Action]:
    return action_texts.by_texts(texts_of(zip(urls, said, strict=True)), page)


# -- the data


def test_every_word_has_a_source_and_every_language_has_words_to_log_out_and_delete() -> None:
    assert len(languages()) >= 20
    for language in languages():
        assert language.words["log_out"], language.name
        assert language.words["delete"], language.name
        for kind in KINDS:
            for word, source in language.words[kind]:
                assert source, word
                assert word == word.strip() == trimmed(word) or word[-1] == "!", word
                assert len(word.encode()) <= MAX_TEXT, word
    for one in software():
        assert one.source.startswith("https://"), one
        assert one.path or one.query, one
        assert one.kind in KINDS
        assert [text for text in (*one.path, *one.query) if text != text.lower()] == []


@pytest.mark.parametrize("language", languages(), ids=lambda language: str(language.name))
def test_every_word_for_logging_out_is_recognised_in_urls_and_texts(language: Language) -> None:
    for word, _ in language.words["log_out"]:
        for text in (word, word.upper(), f"« {word} »", f"[{word}]"):
            found = by_texts([f"{H}/x"], [trimmed(text)])
            assert found[f"{H}/x"].kind == "log_out", text
        for joint in "-_+":
            piece = quote(word.replace(" ", joint), safe="+")
            for url in (f"/{piece}", f"/user/{piece.lower()}/", f"/x?do={piece}", f"/{piece}.php"):
                hit = by_url(url)
                assert hit, url
                assert hit[0].kind == "log_out", url


@pytest.mark.parametrize("language", languages(), ids=lambda language: str(language.name))
def test_every_word_for_deleting_is_recognised_beside_a_number(language: Language) -> None:
    for word, _ in language.words["delete"]:
        piece = quote(word.replace(" ", "-"))
        for url in (f"/posts/3/{piece}", f"/{piece}/3", f"/x?action={piece}&id=3", f"/x?{piece}=3"):
            hit = by_url(url)
            assert hit, url
            assert hit[0].kind == "delete", url
        assert by_texts([f"{H}/r/8?k=1"], [word])[f"{H}/r/8?k=1"].kind == "delete", word


@pytest.mark.parametrize(
    ("word", "encoding"),
    [
        ("退出", "gbk"), ("删除", "gb18030"), ("登出", "big5"), ("刪除", "big5"),
        ("ログアウト", "shift_jis"), ("削除", "euc-jp"), ("로그아웃", "euc-kr"),
        ("Выход", "windows-1251"), ("выйти", "koi8-r"), ("удалить", "windows-1251"),
        ("حذف", "windows-1256"), ("מחק", "windows-1255"), ("Διαγραφή", "windows-1253"),
        ("Löschen", "windows-1252"), ("Usuń", "iso-8859-2"), ("ลบ", "cp874"),
    ],
)  # fmt: skip
def test_words_for_actions_are_recognised_in_the_encoding_of_their_page(
    word: str, encoding: str
) -> None:
    piece = quote(word.encode(encoding))
    for url in (
        f"/{piece}/12",
        f"/12/{re.sub('%..', lambda hex: hex[0].lower(), piece)}/",
        f"/x.php?act={piece}&id=12",
    ):
        assert by_url(url) is not None, url


# -- URLs

ACTIONS = [
    "/logout", "/Logout/", "/account/log-out?x=1", "/user/sign_out", "/signoff",
    "/admin/logout/?next=/", "/index.php?action=logout",
    "/index.php?title=Special:UserLogout&returnto=Home", "/wiki/Special:UserLogout",
    "/wiki/%E7%89%B9%E6%AE%8A:%E7%94%A8%E6%88%B7%E9%80%80%E5%87%BA",
    "/index.php?action=logout;token=3", "/index.php/action=logout;sesc=1",
    "/secure/Logout!default.jspa", "/wiki/logout.action", "/auth/doLogout.action",
    "/member/loginout.php", "/user/tuichu", "/index.php?x=1&do=delete&id=3",
    "/admin.php?act=del&id=3", "/posts/deletePost?id=3", "/cart/removeItem.do",
    "/admin/polls/choice/3/delete/", "/items/3/remove", "/abmelden", "/list/unsubscribe?id=2",
    "/cart/add-to-cart/7", "/checkout", "/admin/password_change/", "/shop/?add-to-cart=99",
    "/ucp.php?mode=logout&sid=0", "/posting.php?mode=delete&f=2&p=3", "/wp-login.php?action=logout",
    "/wp-admin/post.php?post=3&action=trash&_wpnonce=1", "/index.php?route=account/logout",
    "/index.php?r=site%2Flogout", "/?q=user/logout", "/index.php?option=com_users&task=user.logout",
    "/member.php?mod=logging&action=logout&formhash=1", "/w/index.php?title=A&action=rollback",
    "/wiki/Delete?action=delete", "/oauth2/sign_out", "/posts/2024/delete",
    "/en/members/ann/delete",
    "/topic/slug-3/post/5/delete/", "/a/3f2c9d1e/delete", "/delete.php?id=3", "/comment_delete/4",
    "/delete-comment/4", "/vote?id=3&how=up", "/news/delete/3", "/articles/5/like",
    "/me/delete",
    "/x?return=/a&logout=1", "/issue/@@delete_confirmation", "/d/delete_confirmation",
    "/admin/article/del/id/3.html", "/user/%E5%88%A0%E9%99%A4/id/3", "/docs/3/delete",
    "/faq/12/delete/", "/logout/3f2c9d1eabc", "/product/7/buy", "/buy?id=7",
    "/comment/5/eliminar", "/my-account/customer-logout/", "/%d0%92%d0%ab%d0%a5%d0%9e%d0%94",
    "/x?%E6%93%8D%E4%BD%9C=%E5%88%A0%E9%99%A4&id=3", "/a/%C3%87IKI%C5%9E", "/a?%40action=retire",
    "/index.php?title=%D0%A1%D0%BB%D1%83%D0%B6%D0%B5%D0%B1%D0%BD%D0%B0%D1%8F:%D0%92%D1%8B%D1%85"
    "%D0%BE%D0%B4", "/a/remove_from_cart/3", "/user/delete/3", "/follow/7", "/mine/3/DELETE",
    "/%D9%85%D9%82%D8%A7%D9%84/3/%D8%AD%D8%B0%D9%81/", "/forum?do=logout&s=",
]  # fmt: skip
PAGES = [
    "/", "/logo", "/blog/outlook", "/signature", "/products/removable", "/about/deletion-policy",
    "/catalog-out-of-print", "/catalogoutlet", "/dialog/off", "/casa-del-sol",
    "/orders?act=delivery", "/deleted-scenes", "/removed", "/how-to-delete-a-page",
    "/2024/05/delete", "/blog/2024/delete", "/wiki/Delete", "/wiki/Logout", "/wiki/Vote",
    "/articles/delete", "/tag/logout", "/tags/delete/2", "/t/delete/57", "/docs/api/3/delete",
    "/docs/logout", "/docs/logout.html", "/help/sql/delete.html", "/products/logout-cable",
    "/delete",
    "/p/57-logout-cable", "/search?q=delete", "/search?q=logout", "/index.php?title=Delete",
    "/index.php?title=Logout", "/login?next=/logout", "/wiki/Category:Logout", "/delete/",
    "/dictionary/remove", "/questions/delete-a-row-in-sql", "/movie/1234/to-vote-or-not",
    "/like-a-rolling-stone/3", "/subscribe", "/buy", "/vote", "/posts/delete", "/x?sort=delete",
    "/%E5%A6%82%E4%BD%95%E5%88%A0%E9%99%A4%E6%96%87%E4%BB%B6/3", "/articles/%E5%88%A0%E9%99%A4",
    "/manual/en/function.unlink.php", "/manual/en/function.delete.php", "/function.delete.php",
    "/en/5.2/ref/models/instances/", "/en/5.2/ref/urls/delete/", "/delete-me", "/ann/delete-me",
    "/questions/123/how-to-delete-a-branch", "/sortir/paris/concert-123", "/salir/madrid",
    "/vote/2024", "/vote/2024/results", "/elections/2024/vote", "/politics/elections/vote",
    "/buy/12345", "/kaufen/wohnung-123", "/serie/123/folgen", "/wissen/123-artikel", "/esta/3",
    "/search?checkin=2024-05-01&checkout=2024-05-03", "/search?checkout=2024-05-03",
    "/man/3/remove", "/docs/sql/3/delete", "/conjugation/english/delete", "/sql/delete.asp",
    "/verbs/spanish/eliminar", "/docs/logout?highlight=session", "/index.php?title=Delete&oldid=3",
    "/std/fs/fn.remove_file.html", "/src/alloc/btree/remove.rs.html", "/java/util/delete.html",
    "/articles/delete?utm_source=x", "/trash/3", "/mail/trash/55", "/pesan/12", "/glossary/logout",
    "/%E5%88%A0%E9%99%A4%E7%B4%A2%E5%BC%95%E7%9A%84%E6%96%B9%E6%B3%95/3", "/commands/git/revert",
    "/wiki/%D0%92%D1%8B%D1%85%D0%BE%D0%B4", "/wiki/%E5%88%A0%E9%99%A4", "/2024/", "/p/del-mar",
]  # fmt: skip


@pytest.mark.parametrize("tail", ACTIONS)
def test_a_url_of_an_action_is_recognised(tail: str) -> None:
    hit = by_url(tail)
    assert hit is not None
    assert re.match(r"action '.+' \((log out|delete|buy|change), .+\)$", str(hit[0]))


@pytest.mark.parametrize("tail", PAGES)
def test_a_url_that_only_resembles_an_action_is_not_recognised(tail: str) -> None:
    assert by_url(tail) is None


@pytest.mark.parametrize("tail", ["/serie/123/folgen", "/wanted/3/bestellen", "/visa/3/votar"])
def test_ascii_words_of_other_languages_than_english_are_no_actions(tail: str) -> None:
    """A word of one language may mean something else in another."""
    assert by_url(tail) is None


# -- texts

TITLES = [
    "Logout cable", "Cable, logout", "Delete Facebook", "How to delete a page", "The Log Out",
    "Deleted scenes", "Buy me a coffee: a history", "Vote early", "Removal",
    "Log out of Windows 11",
    "如何删除文件",
    "退出游戏的方法", "注销公司需要什么", "删除与恢复", "购买指南", "投票制度", "关注的焦点",
    "刪除檔案的方法", "ログアウトできない", "削除された場面", "로그아웃 문제", "삭제된 장면",
    "Выход из кризиса", "Удалить нельзя оставить", "Купить слона", "Как выйти из сети", "Вихід є",
    "الخروج من مصر", "حذف الملفات في ويندوز", "خروج از بحران", "יציאת מצרים", "हटाएँ या रखें",
    "Çıkış yolu", "Silmek ya da silmemek", "Abmelden beim Amt", "Löschen von Bränden",
    "Déconnexion : un roman", "Supprimer la faim", "Salir del laberinto", "Eliminar barreras",
    "Sair do armário", "Esci da Facebook", "Uitloggen uit het leven", "Usuń to, zapomnij",
    "Odhlásit se z odběru plynu", "Logga ut från livet", "Đăng xuất khỏi cuộc đời", "ลบไม่ออก",
    "Keluar dari zona nyaman", "Αποσύνδεση από το δίκτυο", "Salida", "Exit", "Outlook", "Delta",
]  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_titles_that_contain_a_word_for_an_action_are_no_actions(title: str) -> None:
    assert by_texts([f"{H}/articles/7"], [trimmed(title)]) == {}


@pytest.mark.parametrize(
    "text",
    ["删除文章", "删除此文章", "删除", "Delete post", "Delete this post", "Удалить статью",
     "حذف المقال", "✖ Delete", "【删除】", "[ DELETE ]", "🗑 Löschen", "コメントを削除", "댓글삭제"],
)  # fmt: skip
def test_a_link_text_is_an_action_only_if_its_url_names_an_object(text: str) -> None:
    assert by_texts([f"{H}/r?k=8"], [trimmed(text)]).keys() == {f"{H}/r?k=8"}
    assert by_texts([f"{H}/r/8"], [trimmed(text)]).keys() == {f"{H}/r/8"}
    assert by_texts([f"{H}/about"], [trimmed(text)]) == {}


def test_an_article_titled_delete_is_recognised_by_its_neighbours() -> None:
    urls = [f"{H}/articles/{n}" for n in (55, 56, 57)]
    assert by_texts(urls, ["Cut", "Delete", "Paste"]) == {}
    assert by_texts(urls, ["剪切", "删除", "粘贴"]) == {}
    assert by_texts([f"{H}/wiki/Delete"], ["Delete"]) == {}
    assert by_texts([f"{H}/a?title=Delete&v=1"], ["Delete"]) == {}
    with_buttons = [*urls, f"{H}/o/55-1", f"{H}/o/56-2"]
    found = by_texts(with_buttons, ["Cut", "Delete", "Paste", "Delete", "Delete"])
    assert found.keys() == set(with_buttons[3:])
    # A link that stands beside every article, or beside other buttons, is no such title.
    assert by_texts(urls, ["Delete", "Delete", "Cut"]).keys() == set(urls[:2])
    assert by_texts(urls, ["Edit", "Delete", "Reply"]).keys() == {urls[1]}
    assert by_texts(urls, ["编辑", "删除", "查看"]).keys() == {urls[1]}
    assert by_texts(urls, ["编辑文章", "删除文章", "查看"]).keys() == {urls[1]}
    assert by_texts(urls, ["Create post", "Delete post", "List"]) == {}, "a manual's"


def test_a_log_out_link_is_recognised_beside_any_links_and_a_page_titled_log_out_is_not() -> None:
    urls = [f"{H}/m/{n}" for n in (1, 2, 3)]
    assert by_texts(urls, ["首页", "个人中心", "退出"]).keys() == {urls[2]}
    assert by_texts([f"{H}/wiki/Logout"], ["Logout"]) == {}
    assert by_texts([f"{H}/wiki/%D0%92%D1%8B%D1%85%D0%BE%D0%B4"], ["Выход"]) == {}
    assert by_texts([f"{H}/docs/logout.html"], ["Logout"]) == {}


def test_a_url_is_an_action_if_any_of_its_links_says_that_it_logs_out() -> None:
    assert by_texts([f"{H}/x", f"{H}/x"], ["Ann", "退出"]).keys() == {f"{H}/x"}


def test_a_url_is_no_action_if_another_link_only_shows_it() -> None:
    """On some sites a script lets a link to the page itself delete the page."""
    shown, edit = f"{H}/posts/3", f"{H}/posts/3/edit"
    assert by_texts([shown, edit, shown], ["Show", "Edit", "Destroy"]) == {}
    assert by_texts([shown, shown], ["A title", "Delete"]) == {}
    assert by_texts([shown, shown], ["", "Delete"]).keys() == {shown}
    other = f"{H}/posts/4"
    assert by_texts([shown, shown, other], ["A title", "Delete", "Delete"]).keys() == {other}
    assert by_texts([f"{H}/product/5", f"{H}/product/5"], ["", "Buy now"]) == {}
    assert by_texts([f"{H}/?buy=5"], ["Buy now"]).keys() == {f"{H}/?buy=5"}
    assert by_texts([f"{H}/"], ["退出"]) == {}, "there a script logs out"
    assert by_texts([shown], ["Delete"], page=shown) == {}


def test_a_link_to_a_file_is_an_action_if_the_files_own_name_has_a_number() -> None:
    for path in ("/docs/15/sql-delete.html", "/2.0/api/trait.Delete.html", "/15/a/b/c/d"):
        assert by_texts([H + path], ["DELETE"]) == {}, path
    for path in ("/docs/15/3.html", "/o/15/act", "/o/3/a/b", "/o.html?x"):
        assert by_texts([H + path], ["DELETE"]).keys() == {H + path}


def test_articles_of_a_glossary_are_recognised_by_their_neighbours() -> None:
    said = ["Cut", "Paste", "Delete", "Remove", "Vote", "Apply", "Sort", "Join", "Split", "Map"]
    assert by_texts([f"{H}/terms-of/{n}" for n in range(len(said))], said) == {}
    songs = ["Дом", "Улица", "Выход", "Снег", "Лес", "Река", "Свет", "Зима", "Небо"]
    assert by_texts([f"{H}/o/{n}" for n in range(9)], songs) == {}
    assert by_texts([f"{H}/o/{n}" for n in range(1, 9)], songs[1:]).keys() == {f"{H}/o/2"}
