"""Logins of a user, as in the documentation."""

from __future__ import annotations

import re

import requests

from greencrawl.worker.auth import Login, LoginRefused


class Members(Login):
    """A login to the members' pages of ``django_site``, written as a user would write it."""

    def user_login(self, session: requests.Session, name: str, password: str) -> None:
        page = session.get(self.login_url).text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        form = {"account": name, "secret": password, "came": "from the form", "next": "/members/"}
        form["csrfmiddlewaretoken"] = token[1] if token else ""
        if 'type="password"' in session.post(self.login_url, form).text:
            raise LoginRefused("the members' page says no")
