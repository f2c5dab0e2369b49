"""Sina Weibo's API as documented, as far as a crawl of a timeline needs it.

Clients, codes, tokens and parameters are checked; undocumented requests are refused.
"""

from __future__ import annotations

import secrets
import time
from typing import Any
from urllib.parse import urlencode

from tests.support.api import FORM, ApiServer, Call, Reply, reply

UID = "1404376560"
AUTHORIZE_PARAMETERS = [
    *("client_id", "redirect_uri", "response_type", "scope", "state", "display", "forcelogin"),
    "language",
]
TOKEN_PARAMETERS = ["client_id", "client_secret", "grant_type", "code", "redirect_uri"]
TIMELINE_PARAMETERS = [
    *("source", "access_token", "uid", "screen_name", "since_id", "max_id", "count", "page"),
    *("base_app", "feature", "trim_user"),
]
_NEWEST = 5_000_000_000_000_000


class Weibo(ApiServer):
    """One user with ``statuses`` statuses. ``lasts`` is how many seconds tokens are valid."""

    def __init__(self, statuses: int = 25, lasts: int = 7200, address: str = "127.0.0.8") -> None:
        super().__init__(address)
        self.statuses = [_NEWEST - 7 * number for number in range(statuses)]
        self.lasts = lasts
        self.key = "1234567890"
        self.secret = f"appsecret{secrets.token_hex(12)}"
        self.redirect_uri = "http://127.0.0.1/callback"
        self.codes: dict[str, str] = {}
        self.tokens: dict[str, float] = {}
        self.revoked: set[str] = set()
        self.routes = [
            ("GET", "/oauth2/authorize", self._authorize),
            ("POST", "/oauth2/access_token", self._access_token),
            ("GET", r"/2/statuses/user_timeline\.json", self._timeline),
            ("GET", r"/2/statuses/show\.json", self._show),
        ]

    def secrets(self) -> set[str]:
        return {self.secret, *self.tokens}

    def revoke(self) -> None:
        """Withdraw the user's consent."""
        self.revoked |= set(self.tokens)

    def _error(self, call: Call, status: int, code: int, what: str) -> Reply:
        body = {"error": what, "error_code": code, "request": call.path}
        return reply(status, body, "text/plain;charset=UTF-8")

    def _authorize(self, call: Call) -> Reply:
        """Give consent at once."""
        given = call.given
        if self.undocumented(call, AUTHORIZE_PARAMETERS) or given.get("client_id") != self.key:
            return self._error(call, 400, 21324, "invalid_client")
        if given.get("redirect_uri") != self.redirect_uri:
            return self._error(call, 400, 21322, "redirect_uri_mismatch")
        code = secrets.token_hex(16)
        self.codes[code] = given["redirect_uri"]
        back = urlencode({"state": given.get("state", ""), "code": code})
        return Reply(302, headers={"Location": f"{given['redirect_uri']}?{back}"})

    def _access_token(self, call: Call) -> Reply:
        given = call.given
        if (
            self.undocumented(call, TOKEN_PARAMETERS)
            or call.query
            or call.authorization
            or not call.content_type.startswith(FORM)
        ):
            return self._error(call, 400, 21323, "invalid_request")
        if (given.get("client_id"), given.get("client_secret")) != (self.key, self.secret):
            return self._error(call, 401, 21324, "invalid_client")
        if given.get("grant_type") != "authorization_code":
            return self._error(call, 400, 21328, "unsupported_grant_type")
        if self.codes.pop(given.get("code", ""), None) != given.get("redirect_uri"):
            return self._error(call, 400, 21325, "invalid_grant")
        token = f"2.00{secrets.token_hex(14)}"
        self.tokens[token] = time.time() + self.lasts
        answer = {"access_token": token, "remind_in": str(self.lasts)}
        answer |= {"expires_in": str(self.lasts), "uid": UID, "isRealName": "true"}
        return reply(200, answer, "text/plain;charset=UTF-8")

    def _refusal(self, call: Call) -> Reply | None:
        """Return why a request may not be answered, if so."""
        scheme, _, token = call.authorization.partition(" ")
        token = token if scheme == "OAuth2" else call.given.get("access_token", "")
        if not token:
            return self._error(call, 400, 10006, "Source paramter (appkey) is missing")
        if token in self.revoked:
            return self._error(call, 403, 21319, "Accessor was revoked!")
        if token not in self.tokens:
            return self._error(call, 400, 21332, "invalid_access_token")
        if self.tokens[token] <= time.time():
            return self._error(call, 403, 21327, "expired_token")
        return None

    def _status(self, number: int) -> dict[str, Any]:
        text = f'微博 {number} "error_code":21332'
        return {"id": number, "idstr": str(number), "mid": str(number), "text": text}

    def _timeline(self, call: Call) -> Reply:
        refusal = self._refusal(call)
        if refusal is not None:
            return refusal
        given = call.given
        size = int(given.get("count", "20"))
        if self.undocumented(call, TIMELINE_PARAMETERS) or not 1 <= size <= 100:
            return self._error(call, 400, 10008, "Param error, see doc for more info")
        newest = int(given.get("max_id", "0")) or _NEWEST
        found = [one for one in self.statuses if one <= newest]
        further = found[size] if len(found) > size else 0
        return reply(
            200,
            {
                "statuses": [self._status(one) for one in found[:size]],
                "previous_cursor": 0,
                "next_cursor": further,
                "total_number": len(self.statuses),
            },
        )

    def _show(self, call: Call) -> Reply:
        refusal = self._refusal(call)
        if refusal is not None:
            return refusal
        if self.undocumented(call, ["source", "access_token", "id"]):
            return self._error(call, 400, 10008, "Param error, see doc for more info")
        number = int(call.given.get("id", "0"))
        if number not in self.statuses:
            return self._error(call, 400, 20101, "target weibo does not exist!")
        return reply(200, self._status(number))
