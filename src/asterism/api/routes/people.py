"""`/people`, `/rooms`, `/tokens`, `/users`, `/login` and `/constellations`: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import Field
from starlette.responses import Response

from asterism.api.auth import is_loopback, is_own_origin, session_cookie
from asterism.api.endpoints import JSON, OPEN, ApiCall, Body, endpoint, expected_state
from asterism.api.fields import Name, Paging, Reference, When, page_of_all, whole_list
from asterism.api.shapes import ANY, Shape, list_of
from asterism.app.authentication import AccessToken, Caller
from asterism.app.constellations import Constellation
from asterism.app.people import Room
from asterism.errors import NotAllowed
from asterism.types.agents import Person, Trust
from asterism.views import access_token_view, agent_names, person_names, view

if TYPE_CHECKING:
    from starlette.requests import Request

    from asterism.app import Asterism

_TrustOfPerson = Literal["known", "stranger"]


class NewPerson(Body):
    """A person who is introduced."""

    name: Name
    trust: _TrustOfPerson = "known"
    roles: list[Name] = Field(default_factory=list, max_length=100)


class PersonChange(Body):
    """What is changed of a person; what is left out stays."""

    name: Name | None = None
    trust: _TrustOfPerson | None = None
    roles: list[Name] | None = Field(None, max_length=100)


class AccountBody(Body):
    """An account of a person."""

    account: str = Field(
        max_length=400, pattern=r"^[^:\s]+:\S+$", description="As `channel:sender`."
    )


class OtherPerson(Body):
    """Another person."""

    person: Name


@endpoint("GET", "/people", "people.list", query=Paging, answer=list_of(Person))
async def list_people(call: ApiCall) -> Any:
    """List everybody who is known, the owner first."""
    return page_of_all(await call.home.people.list(), call.query)


@endpoint("POST", "/people", "people.create", body=NewPerson, answer=Person, status=201, edits=True)
async def create_person(call: ApiCall) -> Any:
    """Introduce a person."""
    new: NewPerson = call.body
    return await call.home.people.create(new.name, trust=Trust(new.trust), roles=new.roles)


@endpoint("GET", "/people/{person}", "people.get", answer=Person, edits=True)
async def get_person(call: ApiCall) -> Any:
    """Return a person by name or id."""
    return await call.home.people.get(call.path["person"])


@endpoint(
    "PATCH",
    "/people/{person}",
    "people.edit",
    body=PersonChange,
    answer=Person,
    edits=True,
    conditional=True,
)
async def change_person(call: ApiCall) -> Any:
    """Rename a person, or say how far they are trusted and which roles they have."""
    change: PersonChange = call.body
    person = await call.home.people.get(call.path["person"])
    return await call.home.people.edit(
        person.id,
        name=change.name,
        trust=Trust(change.trust) if change.trust is not None else None,
        roles=change.roles,
        expected=expected_state(call, person, person),
    )


@endpoint("POST", "/people/{person}/accounts", "people.link", body=AccountBody, answer=Person)
async def link_account(call: ApiCall) -> Any:
    """Link an account to a person."""
    return await call.home.people.link(call.path["person"], call.body.account)


@endpoint("DELETE", "/accounts/{account}", "people.unlink")
async def unlink_account(call: ApiCall) -> None:
    """Unlink an account from its person."""
    await call.home.people.unlink(call.path["account"])


@endpoint("POST", "/people/{person}/merge", "people.merge", body=OtherPerson, answer=Person)
async def merge_people(call: ApiCall) -> Any:
    """Make one person of two."""
    return await call.home.people.merge(call.path["person"], call.body.person)


@endpoint("GET", "/rooms", "people.rooms", answer=list_of(Room))
async def list_rooms(call: ApiCall) -> Any:
    """List the rooms of channels, and who is known to be in each."""
    return whole_list(await call.home.people.rooms())


@endpoint("GET", "/rooms/{room}", "people.room", answer=Room)
async def get_room(call: ApiCall) -> Any:
    """Return a room by its name, as `channel:room`."""
    return await call.home.people.room(call.path["room"])


@endpoint("DELETE", "/rooms/{room}/people/{person}", "people.leave_room")
async def leave_room(call: ApiCall) -> None:
    """Note that somebody has left a room."""
    await call.home.people.leave_room(call.path["room"], call.path["person"])


# -- tokens and users ------------------------------------------------------------------------------


class NewTokenBody(Body):
    """A token that is to be made."""

    name: Name
    role: Literal["owner", "admin", "editor", "operator", "partner", "viewer", "agent-service"] = (
        "owner"
    )
    scopes: list[Literal["read", "talk", "append", "overwrite", "delete", "govern"]] = Field(
        default_factory=list, max_length=6
    )
    agents: list[Name] = Field(default_factory=list, max_length=1_000)
    person: Reference | None = None
    expires_at: When | None = None
    constellation: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Another constellation of the server; None: your own.",
    )


class PasswordBody(Body):
    """A new password."""

    password: str = Field(min_length=10, max_length=1_000)


TOKEN = Shape(
    "AccessTokenOfHome", AccessToken, agents=list[str], agent_ids=list[str], person=str | None
)


async def _token(call: ApiCall, token: AccessToken) -> dict[str, Any]:
    return access_token_view(token, await agent_names(call.home), await person_names(call.home))


@endpoint("GET", "/tokens", "tokens.list", query=Paging, answer=list_of(TOKEN))
async def list_tokens(call: ApiCall) -> Any:
    """List the tokens; their secrets are stored nowhere."""
    tokens = await call.home.tokens.list()
    agents, persons = await agent_names(call.home), await person_names(call.home)
    return page_of_all(tokens, call.query, lambda token: access_token_view(token, agents, persons))


@endpoint("GET", "/tokens/{token}", "tokens.get", answer=TOKEN)
async def get_token(call: ApiCall) -> Any:
    """Return a token by its name or id, without its secret."""
    return await _token(call, await call.home.tokens.get(call.path["token"]))


@endpoint(
    "POST",
    "/tokens",
    "tokens.create",
    body=NewTokenBody,
    answer=Shape("NewTokenOfHome", None, "A token and its secret.", token=TOKEN, secret=str),
    status=201,
)
async def create_token(call: ApiCall) -> Any:
    """Make a token; its secret is told this once."""
    made = await call.home.tokens.create(**call.body.values())
    return {"token": await _token(call, made.token), "secret": made.secret}


@endpoint("DELETE", "/tokens/{token}", "tokens.revoke")
async def revoke_token(call: ApiCall) -> None:
    """End a token."""
    await call.home.tokens.revoke(call.path["token"])


@endpoint("GET", "/users", "users.list", answer=list_of(ANY, "User"))
async def list_users(call: ApiCall) -> Any:
    """List who can log in at the web page."""
    return whole_list(await call.home.users.list())


@endpoint("PUT", "/users/{person}/password", "users.set_password", body=PasswordBody)
async def set_password(call: ApiCall) -> None:
    """Let the owner or a person log in with a password; their sessions end."""
    await call.home.users.set_password(call.path["person"], call.body.password)


@endpoint("DELETE", "/users/{person}", "users.remove")
async def remove_user(call: ApiCall) -> None:
    """Let somebody log in no more."""
    await call.home.users.remove(call.path["person"])


# -- logging in ------------------------------------------------------------------------------------


class LogIn(Body):
    """Who logs in at the web page."""

    name: str = Field(min_length=1, max_length=80)
    password: str = Field(min_length=1, max_length=1_000)
    constellation: str | None = Field(
        None, min_length=1, max_length=100, description="None: the server's own."
    )


CALLER = Shape("CurrentCaller", Caller, csrf=str | None, expires_at=int | None)


@endpoint("POST", "/login", OPEN, body=LogIn, answer=CALLER, keyed=False)
async def log_in(call: ApiCall) -> Any:
    """Log in at the web page: sets the cookie of a session, and returns its CSRF token."""
    request, given = call.request, call.body
    server: Asterism = request.app.state.server
    client = request.client.host if request.client is not None else ""
    secure = request.url.scheme == "https"
    _check_login(request, client, secure=secure)
    begun = await server.log_in(
        given.name, given.password, client=client, constellation=given.constellation
    )
    home = await server.home_of_secret(begun.secret)
    known = home.home_of(await home.access.of_session(begun.secret, client))
    caller = await known.users.current()
    shape = _caller_view(caller, begun.csrf, begun.session.expires_at_ms)
    headers = {"set-cookie": session_cookie(begun.secret, secure=secure)}
    return Response(orjson.dumps(shape), 200, headers, JSON)


def _check_login(request: Request, client: str, *, secure: bool) -> None:
    """Raise `NotAllowed` for a login that others could read, or that another page has sent."""
    if not secure and not is_loopback(client):
        raise NotAllowed(
            "Over a network, log in over HTTPS: without it, others can read the password and the "
            "cookie. Put a proxy with TLS in front of the server. Nothing was checked."
        )
    origin = request.headers.get("origin")
    host = request.headers.get("host", "").encode("latin-1")
    if origin is not None and not is_own_origin(request.url.scheme, origin.encode("latin-1"), host):
        raise NotAllowed(
            f"A page of {origin[:200]} cannot log in here; only the web page of this server can. "
            "Use a token instead. Nothing was checked."
        )


def _caller_view(caller: Caller, csrf: str | None, expires_at_ms: int | None) -> dict[str, Any]:
    return {**view(caller), "csrf": csrf, "expires_at": expires_at_ms}


@endpoint("GET", "/session", "users.current", answer=CALLER)
async def current_caller(call: ApiCall) -> Any:
    """Return who you are, and the CSRF token of your session of the web page."""
    state = call.request.state
    caller = await call.home.users.current()
    return _caller_view(caller, getattr(state, "csrf", None), state.token.expires_at_ms)


class OwnPassword(Body):
    """Your password, and the one that takes its place."""

    old: str = Field(min_length=1, max_length=1_000)
    new: str = Field(min_length=10, max_length=1_000)


@endpoint(
    "POST", "/session/password", "users.change_password", body=OwnPassword, status=204, keyed=False
)
async def change_own_password(call: ApiCall) -> Any:
    """Change your own password: all your sessions end, and the browser drops its cookie."""
    _check_session(call)
    await call.home.users.change_password(call.body.old, call.body.new)
    return _without_cookie(call)


@endpoint("POST", "/logout/everywhere", "users.log_out_everywhere", keyed=False)
async def log_out_everywhere(call: ApiCall) -> Any:
    """End all your sessions of the web page, and have the browser drop its cookie."""
    _check_session(call)
    await call.home.users.log_out_everywhere()
    return _without_cookie(call)


def _check_session(call: ApiCall) -> None:
    """Raise `NotAllowed` for a token, which may be for less than the login of its owner."""
    if getattr(call.request.state, "csrf", None) is None:
        raise NotAllowed(
            "This is about your own login, and takes a session of the web page, not a token. Log "
            "in first (POST /api/login). Nothing was changed."
        )


@endpoint("POST", "/logout", "users.log_out", keyed=False)
async def log_out(call: ApiCall) -> Any:
    """End your session of the web page, and have the browser drop its cookie."""
    await call.home.users.log_out()
    return _without_cookie(call)


def _without_cookie(call: ApiCall) -> Response:
    """Return an answer that has the browser drop the cookie of its session."""
    secure = call.request.url.scheme == "https"
    return Response(status_code=204, headers={"set-cookie": session_cookie("", secure=secure)})


# -- constellations --------------------------------------------------------------------------------


class NewConstellation(Body):
    """A constellation that the server serves beside its own."""

    name: str = Field(
        min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
    )


@endpoint("GET", "/constellations", "constellations.list", answer=list_of(Constellation))
async def list_constellations(call: ApiCall) -> Any:
    """List the constellations of the server, for the owner of its own."""
    return whole_list(await call.home.constellations.list())


@endpoint(
    "POST", "/constellations", "constellations.ensure", body=NewConstellation, answer=Constellation
)
async def ensure_constellation(call: ApiCall) -> Any:
    """Return the constellation of a name; create it if there is none."""
    return await call.home.constellations.ensure(call.body.name)


@endpoint("GET", "/constellations/{constellation}", "constellations.get", answer=Constellation)
async def get_constellation(call: ApiCall) -> Any:
    """Return a constellation by its name."""
    return await call.home.constellations.get(call.path["constellation"])
