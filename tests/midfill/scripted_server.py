"""A language server whose answers follow from the text before the cursor; run as a process by the tests."""

import asyncio
import functools
import hashlib
import itertools
import os
import sys

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

USAGE = {
    "prompt_tokens": 90,
    "recomputed_tokens": 2,
    "generated_tokens": 5,
    "forwards": 6,
    "queue_ms": 0.0,
    "prefill_ms": 1.0,
    "decode_ms": 5.0,
}
server = LanguageServer("scripted", "1")
told = itertools.count()


@server.feature(types.INITIALIZED)
def initialized(params: types.InitializedParams) -> None:
    status = {"state": "loading", "message": "", "model": "m", "device": "cpu", "progress": 0.5}
    server.protocol.notify("midfill/status", status)


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
def opened(params: types.DidOpenTextDocumentParams) -> None:
    state = "failed" if "broken" in params.text_document.text else "ready"
    status = {"state": state, "message": "weights are broken", "model": "m", "device": "cpu", "progress": None}
    server.protocol.notify("midfill/status", status)


@server.feature("midfill/didMoveCursor")
def moved(params) -> None:
    report_usage(params.textDocument.uri, params.position, is_prefetch=True)


@server.feature("midfill/documentHash")
def document_hash(params):
    text = server.workspace.get_text_document(params.textDocument.uri).source
    return {"version": 1, "sha256": hashlib.sha256(text.encode()).hexdigest(), "length": len(text)}


@server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION)
async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList:
    document = server.workspace.get_text_document(params.text_document.uri)
    before = document.source[: document.offset_at_position(params.position)]
    if before.endswith("slow"):
        await asyncio.sleep(60)
    if before.endswith("refuse"):
        raise JsonRpcInvalidParams("refused as asked")
    if before.endswith("die"):
        sys.stderr.write("a last word\n")
        sys.stderr.flush()
        os._exit(3)
    if before.endswith("later"):
        await asyncio.sleep(0.3)
    tell = functools.partial(report_usage, params.text_document.uri, params.position, is_prefetch=False)
    request = asyncio.current_task()
    assert request is not None
    request.add_done_callback(lambda _: tell())  # behind the answer, which leaves by an earlier callback
    line = document.lines[params.position.line]
    end = types.Position(params.position.line, document.position_codec.client_num_units(line.rstrip("\n")))
    item = types.InlineCompletionItem(insert_text=f"<{before}>", range=types.Range(params.position, end))
    return types.InlineCompletionList([item])


def report_usage(uri: str, position: types.Position, *, is_prefetch: bool) -> None:
    version = server.workspace.get_text_document(uri).version
    fields = {
        "textDocument": {"uri": uri},
        "version": version,
        "position": {"line": position.line, "character": position.character},
        "isPrefetch": is_prefetch,
        "source": "core",
        "cacheOutcome": "hit",
        "ms": 2.5 + next(told),
    }
    server.protocol.notify("midfill/usage", {**fields, "usage": USAGE})


if __name__ == "__main__":
    sys.stderr.write("noise\n" * 20_000)  # more than a pipe holds: a client that does not read it would hang
    server.start_io()
