"""Tabby's API, as its agent in VS Code, IntelliJ and Vim uses it: completions, health, settings and events."""

from __future__ import annotations

import os
import platform
import uuid
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inference.core.http.bodies import DecodingFields, Fields, Name, OtherFields, line_end_of, read_object
from inference.core.http.openai import finish_reason, usage_of
from inference.core.http.requests import Api, session_of, whole
from inference.core.http.text_anchors import Files
from protocol.messages import MAX_SNIPPETS, CompletionRequest, Snippet, StopRule
from protocol.stopping import columns

MAX_TOKENS = 64  # Tabby's own default; a request cannot ask for more
MAX_PATH_CHARS = 4096

_SECRETS = frozenset({"git_url", "clipboard"})  # or what may hold them
OTHERS = OtherFields(ignored=frozenset({"language"}), neutral={"mode": ("standard",)})
OTHER_SEGMENTS = OtherFields(ignored=_SECRETS, private=_SECRETS)


class EditorSnippet(Struct, frozen=True):
    """A part of another file, which the editor has chosen. Its score is not read."""

    filepath: str
    body: str


Snippets = Annotated[tuple[EditorSnippet, ...], Meta(max_length=MAX_SNIPPETS)] | None


class Segments(Fields, frozen=True, kw_only=True):
    """The text around the cursor, and snippets of other files."""

    prefix: str
    suffix: str = ""
    filepath: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""
    declarations: Snippets = None
    relevant_snippets_from_changed_files: Snippets = None
    relevant_snippets_from_recently_opened_files: Snippets = None

    @property
    def files(self) -> Files:
        """Each snippet once, declarations first."""
        snippets = (
            *(self.declarations or ()),
            *(self.relevant_snippets_from_changed_files or ()),
            *(self.relevant_snippets_from_recently_opened_files or ()),
        )
        return tuple(dict.fromkeys(Snippet(snippet.filepath, snippet.body) for snippet in snippets))

    @property
    def indent(self) -> int:
        """The columns that the cursor's line is indented by."""
        line = self.prefix[self.prefix.rfind("\n") + 1 :]
        return columns(line[: len(line) - len(line.lstrip())])


class SegmentsBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/v1/completions`; `segments` tell the body from OpenAI's."""

    segments: dict[str, Any]
    user: Name | None = None
    session: Name | None = None  # as `stop` and `top_p` not Tabby's own


class Tabby(Api):
    """The handlers."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API, except `/v1/completions`, which OpenAI's has too."""
        return [
            Route("/v1/health", self.health, methods=["GET", "POST"]),
            Route("/v1/events", self.events, methods=["POST"]),
            Route("/v1beta/server_setting", self.setting),
        ]

    async def completions(self, request: Request, values: dict[str, Any]) -> Response:
        """One choice for these fields of a body. The agent shows no line that is indented less than the cursor's."""
        body = self._bodies.converted(request, values, SegmentsBody, OTHERS)
        given = {name: value for name, value in body.segments.items() if value is not None}
        segments = self._bodies.converted(request, given, Segments, OTHER_SEGMENTS, "$.segments")
        session = session_of(request, body.session, "/".join(filter(None, (body.user, segments.filepath))))
        wanted = CompletionRequest(
            session,
            self._asking.around(
                request, session, segments.prefix, segments.suffix, segments.files, steady=True, repeatable=body.repeatable
            ),
            MAX_TOKENS,
            StopRule(segments.indent, closers=(")", "]", "}")),
            stop_texts=body.stop_texts(),
            sampling=body.sampling(),
        )
        line_end = line_end_of(segments.prefix, segments.suffix)
        (completion,) = await whole(self._asking.pieces(request, wanted, grows=False, line_end=line_end))
        choice = {"index": 0, "text": completion.text, "finish_reason": finish_reason(completion)}
        answer = {"id": f"cmpl-{uuid.uuid4().hex}", "choices": [choice]}
        return JSONResponse({**answer, "model": self._model, "usage": usage_of([completion])})

    async def health(self, _request: Request) -> Response:
        """The model, without which clients do not ask, and the machine; 503 if the model cannot be loaded."""
        status = self._asking.scheduler.status
        built = dict.fromkeys(("build_date", "build_timestamp", "git_sha"), "")
        return JSONResponse(
            {
                "model": status.model,
                "device": status.device,
                "arch": platform.machine(),
                "cpu_info": platform.processor(),
                "cpu_count": os.cpu_count() or 0,
                "cuda_devices": [],
                "version": {**built, "git_describe": "midfill"},  # with a number, it would count as that Tabby
            },
            503 if status.state == "failed" else 200,
        )

    async def setting(self, _request: Request) -> Response:
        """The setting for clients: to send no telemetry, which would go to Tabby's makers."""
        return JSONResponse({"disable_client_side_telemetry": True})

    async def events(self, request: Request) -> Response:
        """Drop the clients' reports of shown and accepted texts."""
        await read_object(request)
        return PlainTextResponse("dropped: midfill keeps and sends no telemetry\n")
