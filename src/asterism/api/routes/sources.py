"""`/sources`: folders of documents, and the files that are put into them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pydantic import Field
from starlette.datastructures import UploadFile

from asterism.api.endpoints import ApiCall, Body, bounded, check_length, endpoint
from asterism.api.fields import NEXT, AudienceText, Limit, Name, page_by, whole_list
from asterism.api.shapes import ANY, list_of
from asterism.app.sources import MAX_UPLOAD, checked_file_name
from asterism.errors import InvalidInput
from asterism.types.documents import DocumentSource, SourceDocument
from asterism.views import agent_names, source_view

MAX_FORM = 200 << 20
"""Bytes of all files of a form."""


class NewSource(Body):
    """A folder or a file of the server's machine that is read."""

    name: Name
    path: str = Field(min_length=1, max_length=4_000)
    agents: list[Name] = Field(default_factory=list, max_length=1_000)
    include: list[str] = Field(default_factory=list, max_length=100)
    exclude: list[str] = Field(default_factory=list, max_length=100)
    audience: AudienceText = "owner"


class AfterQuery(Body):
    """A page of documents."""

    limit: Limit = 50
    cursor: str = Field("", max_length=4_000, description=NEXT)


@endpoint("GET", "/sources", "sources.list", answer=list_of(ANY, "SourceOfHome"))
async def list_sources(call: ApiCall) -> Any:
    """List the folders of documents."""
    names = await agent_names(call.home)
    return whole_list([source_view(state, names) for state in await call.home.sources.list()])


@endpoint("POST", "/sources", "sources.add", body=NewSource, answer=DocumentSource, status=201)
async def add_source(call: ApiCall) -> Any:
    """Add a folder or a file of the server's machine."""
    return await call.home.sources.add(**call.body.values())


@endpoint("GET", "/sources/{source}", "sources.get", answer=DocumentSource)
async def get_source(call: ApiCall) -> Any:
    """Return a source by its name."""
    return await call.home.sources.get(call.path["source"])


@endpoint("DELETE", "/sources/{source}", "sources.remove")
async def remove_source(call: ApiCall) -> None:
    """Remove a source and what was read of it; its files stay."""
    await call.home.sources.remove(call.path["source"])


@endpoint(
    "GET",
    "/sources/{source}/documents",
    "sources.documents",
    query=AfterQuery,
    answer=list_of(SourceDocument),
)
async def list_documents(call: ApiCall) -> Any:
    """List the documents of a source by their paths."""
    query: AfterQuery = call.query
    found = await call.home.sources.documents(
        call.path["source"], after=query.cursor, limit=query.limit + 1
    )
    return page_by(found, query, lambda document: document.path)


@endpoint("POST", "/sources/{source}/sync", "sources.sync", answer=ANY)
async def sync_source(call: ApiCall) -> Any:
    """Read what has changed in a source."""
    return await call.home.sources.sync(call.path["source"])


@endpoint("POST", "/sources/{source}/pause", "sources.pause")
async def pause_source(call: ApiCall) -> None:
    """Read a source no more until it is resumed."""
    await call.home.sources.pause(call.path["source"])


@endpoint("POST", "/sources/{source}/resume", "sources.resume")
async def resume_source(call: ApiCall) -> None:
    """Read a paused source again."""
    await call.home.sources.resume(call.path["source"])


@endpoint("PUT", "/sources/{source}/agents/{agent}", "sources.attach")
async def attach_source(call: ApiCall) -> None:
    """Let an agent search a source."""
    await call.home.sources.attach(call.path["source"], call.path["agent"])


@endpoint("DELETE", "/sources/{source}/agents/{agent}", "sources.detach")
async def detach_source(call: ApiCall) -> None:
    """Let an agent search a source no more."""
    await call.home.sources.detach(call.path["source"], call.path["agent"])


# -- files -----------------------------------------------------------------------------------------


@endpoint("PUT", "/sources/{source}/files/{file}", "sources.upload", answer=ANY, upload=True)
async def upload_file(call: ApiCall) -> Any:
    """Put a file into a source, as the body of the request, and read it."""
    check_length(call.request, MAX_UPLOAD)
    return await call.home.sources.upload(
        call.path["source"], call.path["file"], call.request.stream()
    )


@endpoint("POST", "/sources/{source}/files", "sources.upload", answer=ANY, upload=True)
async def upload_files(call: ApiCall) -> Any:
    """Put files into a source, as a form (multipart), and read them."""
    results: dict[str, Any] = {}
    async with bounded(call.request, MAX_FORM).form(max_files=20, max_fields=20) as form:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if not files:
            raise InvalidInput(
                "The form has no file. Send multipart/form-data with at least one part that has a "
                "file name. Nothing was stored."
            )
        # All of them are looked at before the first one is stored.
        names = [checked_file_name(file.filename or "") for file in files]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInput(
                    f"The form has more than one file named {name!r}. Give each a name of its own. "
                    "Nothing was stored."
                )
        for name, file in zip(names, files, strict=True):
            results[name] = await call.home.sources.upload(call.path["source"], name, _parts(file))
    return results


async def _parts(file: UploadFile) -> AsyncGenerator[bytes, None]:
    while part := await file.read(1 << 16):
        yield part
