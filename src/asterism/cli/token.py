"""`asterism token`: who may use the HTTP API, for what and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import read_until
from asterism.cli.output import Column, ItemTable, Result
from asterism.times import local_short, local_text, read_duration
from asterism.types.agents import now_ms
from asterism.views import access_token_view, agent_names, person_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asterism.app import Asterism
    from asterism.app.authentication import AccessToken

app = group("Manage tokens for the HTTP API.")


@command(app, "create", example="token create phone")
async def create(
    options: Options,
    name: Annotated[str, argument("NAME", "A new name.")],
    role: Annotated[
        str,
        option(
            "--role",
            "ROLE",
            "What it may do: owner, admin, editor, operator, partner, viewer, agent-service.",
        ),
    ] = "owner",
    scope: Annotated[
        list[str] | None,
        option(
            "--scope",
            "SCOPE",
            "Allow only this: read, talk, append, overwrite, delete or govern; repeatable.",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        option("--agent -a", "AGENT", "Only this agent, by name or id; repeatable."),
    ] = None,
    person: Annotated[
        str | None,
        option("--person", "WHO", "As whom it acts (default: a new person with its name)."),
    ] = None,
    expires: Annotated[
        str | None, option("--expires", "WHEN", "When it ends: 90d, 12h or a date.")
    ] = None,
    constellation: Annotated[
        str | None,
        option("--constellation", "NAME", "For another constellation of the server."),
    ] = None,
) -> Result:
    """Create a token; its secret is shown now and never again."""
    end = _read_end(expires)
    async with open_home(options) as home:
        made = await home.tokens.create(
            name,
            role=role,
            scopes=scope or (),
            agents=agent or (),
            person=person,
            expires_at=end,
            constellation=constellation,
            by="cli",
        )
        shape = access_token_view(made.token, *await _names(home))
    until = f" until {local_text(made.token.expires_at_ms)}" if made.token.expires_at_ms else ""
    told = (
        f"Created the token {made.token.name} with the role {made.token.role}{until}. Keep its "
        "secret now: it is not stored and cannot be shown again."
    )
    return Result({**shape, "secret": made.secret}, made.secret, notes=[told])


def _read_end(text: str | None) -> datetime | None:
    """Return when a token ends: after a duration, or at a time; a day is meant to its end."""
    if text is None:
        return None
    try:
        return datetime.now(UTC) + timedelta(seconds=read_duration(text))
    except (ValueError, OverflowError):
        return read_until(text)


async def _names(home: Asterism) -> tuple[dict[str, str], dict[str, str]]:
    return await agent_names(home), await person_names(home)


@command(app, "list", example="token list", readonly=True)
async def list_tokens(
    home: Asterism,
    every: Annotated[bool, flag("--all", "Also show tokens that were revoked.")] = False,
) -> Result:
    """Show the tokens, without their secrets."""
    tokens = await home.tokens.list(everything=every)
    agents, persons = await _names(home)
    now = now_ms()
    columns: list[Column[AccessToken]] = [
        Column("token", lambda token: token.name, prose=True),
        Column("role", lambda token: token.role),
        Column("scopes", lambda token: ", ".join(token.scopes) or "all", prose=True),
        Column("agents", lambda token: _listed(token.agents, agents) or "all", prose=True),
        Column("acts as", lambda token: persons.get(token.person_id or "owner", "?"), prose=True),
        Column("expires", lambda token: _short(token.expires_at_ms), least=90),
        Column("last used", lambda token: _short(token.used_at_ms)),
        Column("state", lambda token: token.state(now), state=True),
    ]
    empty = 'There are no tokens. "asterism token create NAME" makes one.'
    shapes = [access_token_view(token, agents, persons) for token in tokens]
    return Result(shapes, ItemTable(columns, tokens, empty))


def _listed(ids: tuple[str, ...], names: Mapping[str, str]) -> str:
    return ", ".join(names.get(id_, id_) for id_ in ids)


def _short(milliseconds: int | None) -> str:
    return local_short(milliseconds) if milliseconds is not None else "never"


@command(app, "revoke", example="token revoke phone")
async def revoke(
    home: Asterism, token: Annotated[str, argument("TOKEN", "The token's name or id.")]
) -> Result:
    """Revoke a token; it is refused from the next request on."""
    revoked = await home.tokens.revoke(token, by="cli")
    shape = access_token_view(revoked, *await _names(home))
    return Result(shape, f"Revoked the token {revoked.name}.")
