"""`plimsoll serve`: the API and the pages at one address, with the controllers beside them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from plimsoll.access.model import person_name
from plimsoll.commands.options import Db, current_actor, database_url
from plimsoll.commands.quota.ways import Target
from plimsoll.rooms import open_keeper
from plimsoll.server.house import House
from plimsoll.server.run import bind, serve
from plimsoll.server.settings import (
    PORT_DEFAULT,
    REQUESTS_PER_SECOND,
    SESSION_HOURS,
    Settings,
    check,
    oidc_settings,
)

LINK_MINUTES = 30.0
SESSION_HOURS_MAX = 720.0

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class LogForm(enum.StrEnum):
    """How requests are logged."""

    TEXT = "text"
    JSON = "json"
    NONE = "none"


@app.command()
def serve_command(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any that is free.")
    ] = PORT_DEFAULT,
    public_url: Annotated[
        str,
        typer.Option(
            "--public-url",
            metavar="URL",
            envvar="PLIMSOLL_PUBLIC_URL",
            help="How people reach it (https://…; needed for other hosts than this one).",
        ),
    ] = "",
    trusted_proxy: Annotated[
        str,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESSES",
            help="Whose X-Forwarded-For is believed, by comma: the proxy with TLS before it.",
            show_default=False,
        ),
    ] = "",
    sign_in: Annotated[
        str,
        typer.Option("--sign-in", metavar="WHO", help="Print a link that signs them in, once.", show_default=False),
    ] = "",
    is_leading: Annotated[
        bool, typer.Option("--lead/--no-lead", help="Also carry out what is due: repairs, campaigns, clusters.")
    ] = True,
    push: Annotated[
        Target | None,
        typer.Option("--push", help="Tell these schedulers what is promised, where the mode is enforce."),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus", metavar="URL", help="The Prometheus that validation checks query.", show_default=False
        ),
    ] = "",
    rate: Annotated[
        float, typer.Option("--rate", min=1, help="How many requests a second are taken from one who asks.")
    ] = REQUESTS_PER_SECOND,
    session_hours: Annotated[
        float,
        typer.Option("--session-hours", min=0.1, max=SESSION_HOURS_MAX, help="How long somebody stays signed in."),
    ] = SESSION_HOURS,
    log: Annotated[LogForm, typer.Option("--log", help="How requests are logged.")] = LogForm.TEXT,
    db: Db = "",
) -> None:
    """Serve the pages and the API until Ctrl-C.

    Who may do what: plimsoll access grant. OIDC and the chat are set by PLIMSOLL_OIDC_… and PLIMSOLL_WEBHOOK.
    """
    settings = Settings(
        dsn=database_url(context, db),
        host=host,
        port=port,
        public_url=public_url,
        trusted_proxy=trusted_proxy,
        is_leading=is_leading,
        session_hours=session_hours,
        log_form=log.value,
        requests_per_second=rate,
        oidc=oidc_settings(),
        push_to=push.value if push is not None else "",
        prometheus=prometheus,
    )
    serve_now(check(settings), sign_in=sign_in)


def serve_now(settings: Settings, *, sign_in: str = "") -> None:
    """Take the address, say it when requests are answered, and serve until the end."""
    import msgspec

    sign_in = person_name(sign_in) if sign_in else ""
    listener = bind(settings)
    settings = msgspec.structs.replace(settings, port=listener.getsockname()[1])
    link = _link(settings, sign_in) if sign_in else ""

    def told(_house: House) -> None:
        typer.echo(f"Plimsoll is at {settings.origin}")
        if link:
            typer.echo(f"  open {settings.origin}/signin/once/{link}")
            typer.echo(
                f"  (it signs {sign_in} in, works once, and for {LINK_MINUTES:g} minutes; Ctrl-C ends the server)"
            )

    serve(settings, listener, told=told)


def _link(settings: Settings, who: str) -> str:
    from plimsoll.access.service import make_link

    with open_keeper(settings.dsn) as keeper:
        secret, _ = make_link(keeper, who, LINK_MINUTES, actor=current_actor(), reason="serve --sign-in")
        return secret
