"""`/tools`, `/registered-tools`, `/approvals`, `/grants` and `/agents/{agent}/rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from asterism.api.endpoints import ApiCall, Body, endpoint
from asterism.api.fields import (
    AudienceText,
    Limit,
    Name,
    Paging,
    PositionPaging,
    Reference,
    Text,
    When,
    page_by,
    page_of_all,
    whole_list,
)
from asterism.api.shapes import ANY, Shape, list_of
from asterism.types.agents import HttpCall, RegisteredTool
from asterism.types.permissions import ApprovalRecord, Grant
from asterism.types.turns import Receipt, ToolResult
from asterism.views import agent_names, approval_details_view, approval_view, grant_view, rule_view


class HttpRequest(Body):
    """The request that a registered tool makes."""

    url: str = Field(max_length=4_000)
    method: str = Field("POST", max_length=10)
    headers: dict[str, str] = Field(default_factory=dict)


class NewTool(Body):
    """A tool that is registered, as source or as a request."""

    name: Name
    description: Text
    json_schema: dict[str, Any]
    python: Text | None = None
    http: HttpRequest | None = None
    effects: list[dict[str, Any]] | None = None
    trust: str = Field("tool", max_length=40)
    retry_safety: str = Field("unknown", max_length=40)
    ask: bool = False
    timeout: float = Field(30.0, gt=0, le=3_600)
    audience: AudienceText = "owner"


class ToolArguments(Body):
    """What a tool is tested with."""

    arguments: dict[str, Any] = Field(default_factory=dict)


@endpoint("GET", "/tools", "tools.offered", answer=list_of(ANY, "OfferedTool"))
async def list_offered_tools(call: ApiCall) -> Any:
    """List all tools as models see them."""
    return whole_list(await call.home.tools.offered())


@endpoint("GET", "/registered-tools", "tools.list", answer=list_of(RegisteredTool))
async def list_registered_tools(call: ApiCall) -> Any:
    """List the registered tools."""
    return whole_list(await call.home.tools.list())


@endpoint("POST", "/registered-tools", "tools.add", body=NewTool, answer=RegisteredTool, status=201)
async def register_tool(call: ApiCall) -> Any:
    """Register a tool, or a new version of one."""
    new: NewTool = call.body
    return await call.home.tools.add(
        schema=new.json_schema,
        http=HttpCall(**new.http.values()) if new.http else None,
        by="api",
        **new.values("json_schema", "http"),
    )


@endpoint(
    "GET", "/registered-tools/{tool}/versions", "tools.versions", answer=list_of(RegisteredTool)
)
async def tool_versions(call: ApiCall) -> Any:
    """List all versions of a registered tool, the newest first."""
    return whole_list(await call.home.tools.versions(call.path["tool"]))


@endpoint(
    "POST", "/registered-tools/{tool}/test", "tools.test", body=ToolArguments, answer=ToolResult
)
async def test_tool(call: ApiCall) -> Any:
    """Run a registered tool once, in its sandbox, and return its result."""
    return await call.home.tools.test(call.path["tool"], call.body.arguments)


@endpoint("DELETE", "/registered-tools/{tool}", "tools.remove")
async def remove_tool(call: ApiCall) -> None:
    """Offer a registered tool no more."""
    await call.home.tools.remove(call.path["tool"])


# -- rules -----------------------------------------------------------------------------------------


class RuleForms(Body):
    """Rules for the calls of an agent."""

    rules: list[dict[str, Any]] = Field(max_length=200)


@endpoint("GET", "/agents/{agent}/rules", "rules.list", answer=list_of(ANY, "RuleForm"))
async def list_rules(call: ApiCall) -> Any:
    """List the rules for the calls of an agent."""
    return _rules(await call.home.rules.list(call.path["agent"]))


@endpoint(
    "PUT",
    "/agents/{agent}/rules",
    "rules.set",
    body=RuleForms,
    answer=list_of(ANY, "RuleForm"),
)
async def set_rules(call: ApiCall) -> Any:
    """Replace the rules of an agent."""
    return _rules(await call.home.rules.set(call.path["agent"], call.body.rules))


def _rules(rules: Sequence[Any]) -> dict[str, Any]:
    return whole_list([rule_view(number, rule) for number, rule in enumerate(rules, 1)])


# -- approvals -------------------------------------------------------------------------------------

APPROVAL = Shape("Approval", ApprovalRecord, agent=str | None, state=str)
APPROVAL_DETAILS = Shape(
    "ApprovalDetails", ApprovalRecord, agent=str | None, state=str, whom=ANY, granted=ANY
)


class ApprovalsQuery(PositionPaging):
    """Which approvals."""

    answered: bool = False
    limit: Limit = 100


class ApprovalDecision(Body):
    """The answer to a question."""

    approved: bool
    note: str | None = Field(None, max_length=10_000)
    arguments: dict[str, Any] | None = None
    grant: Literal["turn", "recipient", "always"] | None = None


@endpoint("GET", "/approvals", "approvals.list", query=ApprovalsQuery, answer=list_of(APPROVAL))
async def list_approvals(call: ApiCall) -> Any:
    """List the questions that wait for an answer, or those that were answered."""
    names = await agent_names(call.home)
    query: ApprovalsQuery = call.query
    approvals = call.home.approvals
    found = (
        await approvals.answered(limit=query.limit + 1, before=query.cursor)
        if query.answered
        else await approvals.list(limit=query.limit + 1, after=query.cursor)
    )
    return page_by(found, query, lambda one: one.id, lambda one: approval_view(one, names))


@endpoint("GET", "/approvals/{approval}", "approvals.show", answer=APPROVAL_DETAILS)
async def get_approval(call: ApiCall) -> Any:
    """Return a question with who may answer it."""
    details = await call.home.approvals.show(call.path["approval"])
    return approval_details_view(details, await agent_names(call.home))


@endpoint(
    "POST",
    "/approvals/{approval}/decision",
    "approvals.decide",
    body=ApprovalDecision,
    answer=Receipt,
)
async def decide_approval(call: ApiCall) -> Any:
    """Answer a question; the turn that asked goes on."""
    return await call.home.approvals.decide(call.path["approval"], **call.body.values())


# -- grants ----------------------------------------------------------------------------------------

GRANT = Shape("GrantOfAgent", Grant, agent=str | None)


class GrantsQuery(Paging):
    """Which grants."""

    agent: Reference | None = None
    everything: bool = False


class NewGrant(Body):
    """A permission for more than one call."""

    tool: Name
    agent: Reference | None = None
    pattern: dict[str, str] = Field(default_factory=dict)
    until: When | None = None
    uses: int | None = Field(None, ge=1)
    amount: float | None = Field(None, ge=0)
    per_day: int | None = Field(None, ge=1)


@endpoint("GET", "/grants", "grants.list", query=GrantsQuery, answer=list_of(GRANT))
async def list_grants(call: ApiCall) -> Any:
    """List the grants that count, or all there ever were."""
    names = await agent_names(call.home)
    found = await call.home.grants.list(call.query.agent, everything=call.query.everything)
    return page_of_all(found, call.query, lambda grant: grant_view(grant, names))


@endpoint("POST", "/grants", "grants.give", body=NewGrant, answer=Grant, status=201)
async def give_grant(call: ApiCall) -> Any:
    """Let an agent call a tool without asking each time."""
    return await call.home.grants.give(**call.body.values())


@endpoint("DELETE", "/grants/{grant}", "grants.revoke")
async def revoke_grant(call: ApiCall) -> None:
    """Take a grant back."""
    await call.home.grants.revoke(call.path["grant"])
