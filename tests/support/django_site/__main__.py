"""``python -m tests.support.django_site FOLDER``: serve what ``FOLDER/site.json`` describes."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.core.servers.basehttp import WSGIRequestHandler, WSGIServer

PACKAGE = "tests.support.django_site"
OURS = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would look up the name of each address
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    """It keeps connections and leaves logging to ``access``."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: see ``access.AccessLog``."""

    def address_string(self) -> str:
        return str(self.client_address[0])


def configure(folder: Path, given: dict[str, Any]) -> None:
    """Configure Django's settings, for an empty database file in ``folder``."""
    settings.configure(
        SITE_FOLDER=folder,
        SITE=given,
        SECRET_KEY=given["secret_key"],
        ALLOWED_HOSTS=["*"],
        DEBUG=False,
        ROOT_URLCONF=f"{PACKAGE}.urls",
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in OURS), "oauth2_provider", PACKAGE],
        MIDDLEWARE=[
            f"{PACKAGE}.access.AccessLog",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            f"{PACKAGE}.access.Who",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [Path(__file__).parent / "templates"],
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": folder / "site.sqlite",
                "OPTIONS": {
                    "timeout": 30,
                    "transaction_mode": "IMMEDIATE",
                    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF",
                },
            }
        },
        # Tables are made from the models at once: replaying all migrations takes seconds.
        MIGRATION_MODULES=dict.fromkeys((*OURS, "oauth2_provider", "django_site")),
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        AUTH_PASSWORD_VALIDATORS=[],
        SESSION_SAVE_EVERY_REQUEST=given["sliding"],
        LOGIN_URL="/accounts/login/",
        LOGIN_REDIRECT_URL="/members/",
        STATIC_URL="/static/",
        USE_TZ=True,
        OAUTH2_PROVIDER={
            "SCOPES": {"read": "Read"},
            "ACCESS_TOKEN_EXPIRE_SECONDS": given["access_seconds"],
            "ROTATE_REFRESH_TOKEN": True,
            # A refresh token that is used twice takes the whole family of tokens with it.
            "REFRESH_TOKEN_REUSE_PROTECTION": True,
            "PKCE_REQUIRED": True,
        },
        LOGGING_CONFIG=None,
    )
    django.setup()


def main() -> None:
    folder = Path(sys.argv[1])
    given = json.loads((folder / "site.json").read_text())
    configure(folder, given)
    from tests.support.django_site.content import fill

    call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
    fill(given)
    from django.core.handlers.wsgi import WSGIHandler

    application = WSGIHandler()
    for address in given["addresses"]:
        server = _Server((address, given["port"]), _Handler)
        server.set_app(application)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "ready").touch()
    threading.Event().wait()


if __name__ == "__main__":
    main()
