"""Our MCP server with the tools, prompts and resources that MCP's conformance suite calls.

The suite asks for diagnostic tools by fixed names, which no server has for its users. They are put
beside the real ones: transport, sessions, errors, listening and everything else stay ours.
"""

import asyncio
import base64
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult
Diagnostic = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

MODERN = "2026-07-28"


def _png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        size, check = len(body).to_bytes(4), zlib.crc32(kind + body).to_bytes(4)
        return size + kind + body + check

    header = b"\0\0\0\1\0\0\0\1\x08\2\0\0\0"
    pixels = zlib.compress(b"\0\xff\0\0")
    parts = chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


PNG = base64.b64encode(_png()).decode()
WAV = base64.b64encode(
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0"
    b"data\2\0\0\0\x80\x80"
).decode()


def with_diagnostics(server: Server[Any]) -> Server[Any]:
    """Put what the suite calls beside what the server has."""
    tools = server.get_request_handler("tools/call")
    assert tools is not None

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        diagnostic = TOOLS.get(params.name)
        return await (diagnostic or tools.handler)(ctx, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    _extend_lists(server)
    _extend_resources(server)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="asterism")
    )
    return server


async def accept(_: Context, __: Any) -> types.EmptyResult:
    return types.EmptyResult()


def _extend_lists(server: Server[Any]) -> None:
    tools = server.get_request_handler("tools/list")
    resources = server.get_request_handler("resources/list")
    templates = server.get_request_handler("resources/templates/list")
    assert tools is not None
    assert resources is not None
    assert templates is not None

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> Any:
        listed = await tools.handler(ctx, params)
        assert isinstance(listed, types.ListToolsResult)
        return types.ListToolsResult(
            tools=[*listed.tools, *(_described(name) for name in TOOLS)], ttl_ms=1000
        )

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams) -> Any:
        listed = await resources.handler(ctx, params)
        assert isinstance(listed, types.ListResourcesResult)
        more = [types.Resource(uri=uri, name=uri, description="diagnostic") for uri in RESOURCES]
        return types.ListResourcesResult(resources=[*listed.resources, *more])

    async def list_templates(ctx: Context, params: types.PaginatedRequestParams) -> Any:
        listed = await templates.handler(ctx, params)
        assert isinstance(listed, types.ListResourceTemplatesResult)
        more = types.ResourceTemplate(name="diagnostic", uri_template="test://template/{id}/data")
        return types.ListResourceTemplatesResult(
            resource_templates=[*listed.resource_templates, more]
        )

    async def list_prompts(_: Context, __: types.PaginatedRequestParams) -> Any:
        prompts = [
            types.Prompt(
                name=name,
                description="diagnostic",
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    paged = types.PaginatedRequestParams
    server.add_request_handler("tools/list", paged, list_tools)
    server.add_request_handler("resources/list", paged, list_resources)
    server.add_request_handler("resources/templates/list", paged, list_templates)
    server.add_request_handler("prompts/list", paged, list_prompts)


def _described(name: str) -> types.Tool:
    strings = {"test_sampling": "prompt", "test_elicitation": "message"}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if name in strings:
        schema["properties"][strings[name]] = {"type": "string"}
        schema["required"] = [strings[name]]
    return types.Tool(name=name, description="diagnostic", input_schema=schema)


RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": types.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=PNG
    ),
}


def _extend_resources(server: Server[Any]) -> None:
    read = server.get_request_handler("resources/read")
    subscribe = server.get_request_handler("resources/subscribe")
    complete = server.get_request_handler("completion/complete")
    assert read is not None
    assert subscribe is not None
    assert complete is not None

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri == "test://template/123/data":
            text = json.dumps({"id": "123", "templateTest": True, "data": "Data for ID: 123"})
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
            return types.ReadResourceResult(contents=[found])
        if uri in RESOURCES:
            return types.ReadResourceResult(contents=[RESOURCES[uri]])
        return await read.handler(ctx, params)

    async def subscribe_resource(ctx: Context, params: types.SubscribeRequestParams) -> Any:
        if str(params.uri) == "test://watched-resource":
            return types.EmptyResult()
        return await subscribe.handler(ctx, params)

    async def complete_argument(ctx: Context, params: types.CompleteRequestParams) -> Any:
        if isinstance(params.ref, types.PromptReference):
            return types.CompleteResult(completion=types.Completion(values=["paris", "park"]))
        return await complete.handler(ctx, params)

    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
    server.add_request_handler(
        "resources/subscribe", types.SubscribeRequestParams, subscribe_resource
    )
    server.add_request_handler(
        "completion/complete", types.CompleteRequestParams, complete_argument
    )


# -- prompts ---------------------------------------------------------------------------------------

PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def get_prompt(_: Context, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _prompt(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return _prompt(
                text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
            )
        case "test_prompt_with_embedded_resource":
            embedded = resource(
                given["resourceUri"], "text/plain", "Embedded resource content for testing."
            )
            return _prompt(embedded, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return _prompt(image(), text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            if "user_context" in (params.input_responses or {}):
                return _prompt(text("With the context that was given."))
            question = form("What context should the prompt use?", "context")
            return types.InputRequiredResult(input_requests={"user_context": question})
        case _:
            raise MCPError(types.INVALID_PARAMS, "Unknown prompt")


def _prompt(*contents: types.ContentBlock) -> types.GetPromptResult:
    messages = [types.PromptMessage(role="user", content=content) for content in contents]
    return types.GetPromptResult(messages=messages)


# -- tools -----------------------------------------------------------------------------------------


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def resource(uri: str, mime_type: str, said: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=said)
    return types.EmbeddedResource(type="resource", resource=contents)


def form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sampling(question: str, most: int = 100) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=text(question))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[said], max_tokens=most)
    )


def fixed(*contents: types.ContentBlock, is_error: bool = False) -> Diagnostic:
    """A tool that always says the same."""

    async def say(_: Context, __: types.CallToolRequestParams) -> Result:
        return types.CallToolResult(content=list(contents), is_error=is_error)

    return say


async def log(ctx: Context, _: types.CallToolRequestParams) -> Result:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if ctx.protocol_version < MODERN:
            await ctx.session.send_notification(
                types.LoggingMessageNotification(
                    params=types.LoggingMessageNotificationParams(level="info", data=said)
                ),
                related_request_id=ctx.request_id,
            )
        await asyncio.sleep(0)
    return types.CallToolResult(content=[text("logged")])


async def progress(ctx: Context, _: types.CallToolRequestParams) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
    return types.CallToolResult(content=[text("done")])


async def sample(ctx: Context, params: types.CallToolRequestParams) -> Result:
    from mcp.shared.message import ServerMessageMetadata

    said = await ctx.session.send_request(
        sampling(str((params.arguments or {})["prompt"])),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )
    return types.CallToolResult(content=[text(f"LLM response: {said.content}")])


def eliciting(message: str, properties: dict[str, Any], required: list[str]) -> Diagnostic:
    """A tool that asks the user for something."""

    async def elicit(ctx: Context, params: types.CallToolRequestParams) -> Result:
        schema = {"type": "object", "properties": properties, "required": required}
        answer = await ctx.session.elicit_form(
            str((params.arguments or {}).get("message", message)),
            schema,
            related_request_id=ctx.request_id,
        )
        said = f"Elicitation completed: action={answer.action}, content={answer.content}"
        return types.CallToolResult(content=[text(said)])

    return elicit


def asking(requests: dict[str, Any], done: str, state: str | None = None) -> Diagnostic:
    """A tool that needs input, all of it, before it is done."""

    async def ask(_: Context, params: types.CallToolRequestParams) -> Result:
        given = params.input_responses or {}
        if requests.keys() <= given.keys() and params.request_state == state:
            said = ", ".join(str(given[key]) for key in requests)
            return types.CallToolResult(content=[text(f"{done} {said}")])
        return types.InputRequiredResult(input_requests=requests, request_state=state)

    return ask


async def multi_round(_: Context, params: types.CallToolRequestParams) -> Result:
    given = params.input_responses or {}
    if params.request_state == "second" and "step2" in given:
        return types.CallToolResult(content=[text(f"done: {given['step2']}")])
    if params.request_state == "first" and "step1" in given:
        question = form("Step 2: What is your favorite color?", "color")
        return types.InputRequiredResult(input_requests={"step2": question}, request_state="second")
    question = form("Step 1: What is your name?", "name")
    return types.InputRequiredResult(input_requests={"step1": question}, request_state="first")


async def by_capability(ctx: Context, _: types.CallToolRequestParams) -> Result:
    capabilities = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.elicitation is not None:
        requests["user_name"] = form("What is your name?", "name")
    if capabilities is not None and capabilities.sampling is not None:
        requests["greeting"] = sampling("Generate a greeting")
    return types.InputRequiredResult(input_requests=requests)


async def need_sampling(ctx: Context, _: types.CallToolRequestParams) -> Result:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", needed)
    return types.CallToolResult(content=[text("ok")])


NAME = form("What is your name?", "name")
ROOTS = types.ListRootsRequest(params=types.RequestParams())
CHOICES = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]

TOOLS: dict[str, Diagnostic] = {
    "test_simple_text": fixed(text("This is a simple text response for testing.")),
    "test_image_content": fixed(image()),
    "test_audio_content": fixed(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")),
    "test_embedded_resource": fixed(
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": fixed(
        text("Multiple content types test:"),
        image(),
        resource(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ),
    "test_error_handling": fixed(
        text("This tool intentionally returns an error for testing"), is_error=True
    ),
    "test_tool_with_logging": log,
    "test_logging_tool": log,
    "test_tool_with_progress": progress,
    "test_sampling": sample,
    "test_elicitation": eliciting(
        "Who are you?",
        {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        ["username", "email"],
    ),
    "test_elicitation_sep1034_defaults": eliciting(
        "Look over these.",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {
                "type": "string",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "default": True},
        },
        [],
    ),
    "test_elicitation_sep1330_enums": eliciting(
        "Choose.",
        {
            "untitledSingle": {"type": "string", "enum": CHOICES},
            "titledSingle": {"type": "string", "oneOf": TITLED},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
            "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
        },
        [],
    ),
    "test_missing_capability": need_sampling,
    "test_streaming_elicitation": asking({"user_name": NAME}, "Hello,"),
    "test_input_required_result_elicitation": asking({"user_name": NAME}, "Hello,"),
    "test_input_required_result_sampling": asking(
        {"capital_question": sampling("What is the capital of France?")}, "It is"
    ),
    "test_input_required_result_list_roots": asking({"client_roots": ROOTS}, "Roots:"),
    "test_input_required_result_request_state": asking(
        {"confirm": form("Please confirm", "ok", "boolean")}, "state-ok", "confirming"
    ),
    "test_input_required_result_tampered_state": asking(
        {"confirm": form("Please confirm", "ok", "boolean")}, "state-ok", "confirming"
    ),
    "test_input_required_result_multiple_inputs": asking(
        {
            "user_name": NAME,
            "greeting": sampling("Generate a greeting", 50),
            "client_roots": ROOTS,
        },
        "All of it:",
        "several",
    ),
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_capabilities": by_capability,
}
