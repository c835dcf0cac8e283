"""`plimsoll serve`: the API and the pages at one address, with the controllers beside them."""

from __future__ import annotations

from typing import Annotated

import typer

from plimsoll.commands.options import Db, database_url
from plimsoll.commands.quota.ways import Target
from plimsoll.errors import NotFound
from plimsoll.rooms import open_keeper
from plimsoll.server.house import House
from plimsoll.server.run import bind, serve
from plimsoll.server.settings import PORT_DEFAULT, REQUESTS_PER_SECOND, Settings, check, oidc_settings
from plimsoll.words import near

LINK_MINUTES = 30.0

app = typer.Typer(rich_markup_mode=None, add_completion=False)
_FORMS = ("text", "json", "none")


@app.command()
def serve_command(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any that is free.")
    ] = PORT_DEFAULT,
    public_url: Annotated[
        str,
        typer.Option("--public-url", metavar="URL", envvar="PLIMSOLL_PUBLIC_URL", help="How people reach it."),
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
        typer.Option("--prometheus", metavar="URL", help="Which one checks of validation ask.", show_default=False),
    ] = "",
    rate: Annotated[
        float, typer.Option("--rate", min=1, help="How many requests a second are taken from one who asks.")
    ] = REQUESTS_PER_SECOND,
    log: Annotated[str, typer.Option("--log", metavar="text|json|none", help="How requests are logged.")] = "text",
    db: Db = "",
) -> None:
    """Serve the pages and the API until Ctrl-C.

    Who may do what: plimsoll access grant. OIDC and the chat are set by PLIMSOLL_OIDC_… and PLIMSOLL_WEBHOOK.
    """
    if log not in _FORMS:
        raise NotFound("bad_usage", f"--log {log[:50]!r} is none of {', '.join(_FORMS)}{near(log, _FORMS)}")
    settings = Settings(
        dsn=database_url(context, db),
        host=host,
        port=port,
        public_url=public_url,
        trusted_proxy=trusted_proxy,
        is_leading=is_leading,
        log_form=log,
        requests_per_second=rate,
        oidc=oidc_settings(),
        push_to=push.value if push is not None else "",
        prometheus=prometheus,
    )
    serve_now(check(settings), sign_in=sign_in)


def serve_now(settings: Settings, *, sign_in: str = "") -> None:
    """Take the address, say it when requests are answered, and serve until the end."""
    import msgspec

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
    from plimsoll.access.service import open_link

    with open_keeper(settings.dsn) as keeper:
        return open_link(keeper.ledger.store, who, LINK_MINUTES, keeper.ledger.clock())
