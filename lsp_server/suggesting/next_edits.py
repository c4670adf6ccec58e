"""Next edits for one client: follows its edits, asks the model, and keeps an offer while the user types it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from lsp_server.documents.documents import Document, Edit, Position, Replacement, end_of, trimmed
from lsp_server.next_edit.families import FORMATS, format_named, format_of_model
from lsp_server.next_edit.formats import BadAnswer, LaidPrompt, NextEditFormat, edit_of, next_anchor
from lsp_server.next_edit.gate import (
    Hunk,
    Moment,
    Proposal,
    Trigger,
    is_bulk,
    proposal_of,
    reason_not_to_ask,
    reason_not_to_show,
    refuse,
)
from lsp_server.next_edit.history import PAUSE_S, History
from lsp_server.next_edit.offers import rebased, typed_at
from lsp_server.next_edit.regions import RegionAnchor
from lsp_server.suggesting.explainer import Explainer
from lsp_server.suggesting.latest import Latest
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments, enabled_sources
from lsp_server.suggesting.requests import Core
from protocol.errors import BadInput, Cancelled, CoreUnavailable, MidfillError
from protocol.messages import CompletionRequest, Prompt, Snippet, StopRule
from protocol.settings import Settings

logger = logging.getLogger(__name__)

CONTEXT_TOKENS = 16_384
"""The longest prompts of these formats, with the answer, need this much; a core gives its model's own limit if less."""

_UNTIL_THE_END = StopRule(indent=0)  # no line is indented by less
_TYPING_S = 0.09  # between two keys of a fast typist; clients ask 0.1 s or more after the last one
_MOST_REMEMBERED = 256  # states of a document, to know an undo again

Outcome = Literal["shown", "accepted", "refused"]


def chosen_model(settings: Settings) -> tuple[NextEditFormat, Settings] | None:
    """The format of the model that the settings name, and the settings of the core that runs it; None without a name.

    BadInput for a model whose format is not known.
    """
    if not settings.next_edit_model:
        return None
    name, _, model = settings.next_edit_model.partition(":")
    layout = format_named(name) if model and name in FORMATS else format_of_model(settings.next_edit_model)
    model = model if model and name in FORMATS else settings.next_edit_model
    engine = settings.next_edit_engine
    if engine.startswith(("ws://", "wss://")):
        return layout, replace(settings, core=engine, model=model)
    if (settings.core, settings.model, settings.engine) == ("", model, engine):
        return layout, settings  # the same core runs both
    context = max(settings.context_tokens, CONTEXT_TOKENS)
    return layout, replace(settings, core="", model=model, engine=engine, context_tokens=context)


@dataclass(frozen=True, slots=True)
class NextEdit:
    """An edit that is offered to the user; `replacement` is what is left of it."""

    number: int
    replacement: Replacement
    proposal: Proposal

    @property
    def edit(self) -> Edit:
        """The edit without a line end that it only repeats, so that it ends in the line where it shows."""
        edit, replaced = self.replacement
        line_end = "\r\n" if replaced.endswith("\r\n") else "\n"
        if not (edit.text.endswith(line_end) and replaced.endswith(line_end)):
            return edit
        end = end_of(edit.start, replaced.removesuffix(line_end))
        return Edit(edit.start, end, edit.text.removesuffix(line_end))


@dataclass(slots=True)
class _Edited:
    """A document in which next edits are offered."""

    opened: OpenDocument
    anchor: RegionAnchor | None = None
    was_left: bool = False  # for another document, whose edits the anchor's events lack
    offer: NextEdit | None = None
    completed: NextEdit | None = None  # an offer that an edit of one character has just completed, typed or accepted
    was_shown: bool = False  # the offer
    refused: tuple[Hunk, ...] = ()
    states: deque[int] = field(default_factory=lambda: deque([0], maxlen=_MOST_REMEMBERED))  # see `_neighbours`
    latest: Latest[NextEdit] = field(default_factory=Latest)
    nothing_at: tuple[int, Position] | None = None  # edits and cursor of the last answer
    asked_at: int = 0  # `edits` then
    reason: str = ""  # why the last request got no offer


class NextEdits:
    """Offers edits in the client's documents, while `use` has named a format.

    `on_outcome` gets what becomes of offers, and `on_fault` why there will be
    none, in words for the user.
    """

    def __init__(
        self,
        core: Core,
        client: str,
        documents: OpenDocuments,
        explainer: Explainer,
        on_outcome: Callable[[OpenDocument, Outcome], None],
        on_fault: Callable[[str], None],
    ) -> None:
        self._core, self._client, self._documents, self._explainer = core, client, documents, explainer
        self._on_outcome, self._on_fault = on_outcome, on_fault
        self._layout: NextEditFormat | None = None
        self._history = History()
        self._recorded: set[str] = set()  # URIs of the documents whose edits the history has
        self._sources: set[str] = set()  # and of those that snippets were cut from
        self._rest: asyncio.TimerHandle | None = None
        self._edited: dict[str, _Edited] = {}
        self._sessions: set[str] = set()
        self._numbers = itertools.count(1)
        self._client_tells = False  # which offers it shows
        self._rejections, self._rejected_at = 0, float("-inf")
        self._accepted = False  # since the last request
        self._undone = self._bulk = False  # the last edit

    @property
    def enabled(self) -> bool:
        return self._layout is not None

    def use(self, layout: NextEditFormat | None) -> None:
        """Offer edits of a model of this format from now on, or none."""
        if layout != self._layout:
            self._layout = layout
            self._drop()

    def changed(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        """Follow a change of a document, which has been applied."""
        if self._layout is None:
            return
        edited, steps = self._of(opened), [trimmed(replacement) for replacement in replacements]
        steps = [step for step in steps if step.replaced or step.edit.text]
        edited.latest.supersede()
        edited.completed = None
        document = _before(opened.document, steps)
        if document is None or not steps:
            edited.anchor = edited.offer = None
            return
        state = edited.states[-1]
        newest = self._history.newest
        path, is_private = self._documents.shown_path(opened.document.uri), self._is_private(opened)
        edited.was_left = edited.was_left or (newest is not None and newest.path != path)
        for step in steps:
            before = list(document.lines)
            change = first, removed, added = document.apply(step.edit)
            state += _neighbours(document.lines, first, added) - _neighbours(before, first, removed)
            accepted = self._follow(edited, step, document)
            if not is_private:
                now = time.monotonic()
                self._history = self._history.edited(path, before, document.lines, change, now, accepted=accepted)
                self._recorded.add(opened.document.uri)
            if edited.anchor is not None:  # one that an edit has torn holds its document's first state all the same
                edited.anchor = edited.anchor.followed(change) or edited.anchor
        self._note(edited, steps, state)
        if self._rest is not None:
            self._rest.cancel()
        if edited.anchor is not None:  # this document is asked for
            self._rest = asyncio.get_running_loop().call_later(PAUSE_S, self._at_rest, edited)

    def closed(self, uri: str) -> None:
        """Forget a document, and release its prompts in the core."""
        if (edited := self._edited.pop(uri, None)) is not None:
            edited.latest.supersede()
            self._core.release(self._session(uri))

    async def offer(self, opened: OpenDocument, cursor: Position, *, invoked: bool = False) -> NextEdit | None:
        """The edit to offer for a cursor; None with a reason in `reason_of`."""
        edited = self._of(opened)
        edited.reason = self._switched_off(opened, invoked=invoked) or ""
        if edited.reason:
            return None
        if edited.offer is not None and opened.excluded is None and not invoked:
            return edited.offer
        if edited.nothing_at == (opened.edits, cursor) and not invoked:
            return None
        trigger = "command" if invoked else self._trigger(edited)
        edited.reason = self._why_not(opened, trigger) or ""
        if edited.reason:
            return None
        self._accepted, edited.asked_at, edited.offer = False, opened.edits, None
        work = partial(self._ask, edited, cursor, trigger)
        offer = await edited.latest.run(work)
        if opened.edits != edited.asked_at or edited.latest.busy:  # superseded
            return None
        if offer is None:
            logger.debug("no next edit in %s: %s", opened.document.uri, edited.reason)
        edited.offer, edited.was_shown = offer, False
        if offer is not None and not self._client_tells:
            self._show(edited)
        return offer

    def reason_of(self, opened: OpenDocument) -> str:
        """Why the document's last request got no offer; empty if it did."""
        return self._of(opened).reason

    def shown(self, number: int) -> None:
        """The client shows this offer; from the first such call on, it tells of all that it shows."""
        self._client_tells = True
        if (edited := self._offering(number)) is not None:
            self._show(edited)

    def accepted(self, number: int) -> None:
        """The user has accepted this offer; where an edit has shown that already, nothing happens."""
        for edited in self._edited.values():
            if any(offer is not None and offer.number == number for offer in (edited.offer, edited.completed)):
                self._accept(edited)

    def refused(self, number: int) -> None:
        """The user does not want this offer: nothing like it is offered again, and nothing for a while."""
        if (edited := self._offering(number)) is not None:
            self._refuse(edited)

    def _of(self, opened: OpenDocument) -> _Edited:
        uri = opened.document.uri
        if uri not in self._edited or self._edited[uri].opened is not opened:
            self._edited[uri] = _Edited(opened)
        return self._edited[uri]

    def _offering(self, number: int) -> _Edited | None:
        each = self._edited.values()
        return next((edited for edited in each if edited.offer is not None and edited.offer.number == number), None)

    def _session(self, uri: str) -> str:
        return f"{self._client}/{uri}"

    def _is_private(self, opened: OpenDocument) -> bool:
        """Whether the last check kept the document out of others' prompts; one that was not checked yet is checked
        before the history is used.
        """
        verdicts, uri = opened.workspace.verdicts, opened.document.uri
        own = verdicts.own(uri)
        return verdicts.is_excluded(uri) and (own is None or own.cause != "unchecked")

    def _note(self, edited: _Edited, steps: Sequence[Replacement], state: int) -> None:
        """Remember what kind of edit this is; several characters at once that bring a known state back are an undo."""
        inserted = "".join(step.edit.text for step in steps)
        self._bulk = is_bulk(len(inserted), inserted.count("\n"))
        self._undone = len(steps[-1].edit.text) + len(steps[-1].replaced) > 1 and state in edited.states
        edited.states.append(state)

    def _trigger(self, edited: _Edited) -> Trigger:
        if self._accepted:
            return "acceptance"
        return "pause" if edited.opened.edits != edited.asked_at else "jump"

    def _switched_off(self, opened: OpenDocument, *, invoked: bool) -> str | None:
        reason = self._explainer.switched_off(opened)
        if reason is None and not invoked:
            reason = self._explainer.waits_for_user(opened)
        return None if reason is None else reason.text

    def _why_not(self, opened: OpenDocument, trigger: Trigger) -> str | None:
        now = time.monotonic()
        moment = Moment(
            trigger=trigger,
            changed=opened.document.uri in self._recorded,
            since_edit_s=now - opened.edited_at,
            undone=self._undone,
            bulk=self._bulk,
            rejections=self._rejections,
            since_rejection_s=now - self._rejected_at,
        )
        return reason_not_to_ask(moment)

    def _at_rest(self, edited: _Edited) -> None:
        """Lay the document's prompt anew and make it resident, ahead of the next key."""
        opened = edited.opened
        if self._layout is None or edited.latest.busy or opened not in self._documents:
            return
        if (self._switched_off(opened, invoked=False) or self._why_not(opened, "pause")) is None:
            edited.latest.start(partial(self._ahead, edited, self._layout, opened.cursor))

    async def _ahead(self, edited: _Edited, layout: NextEditFormat, cursor: Position) -> None:
        if await self._is_allowed(edited.opened):
            with suppress(MidfillError):  # as the next request will tell
                prompt = self._lay(edited, layout, cursor, at_rest=True)
                await self._core.complete(self._request(edited.opened, prompt, max_tokens=0))

    def _lay(self, edited: _Edited, layout: NextEditFormat, cursor: Position, *, at_rest: bool) -> LaidPrompt:
        """The prompt for the cursor; BadInput if the document holds a marker."""
        document = edited.opened.document
        path, snippets = self._documents.shown_path(document.uri), self._snippets(edited.opened)
        edited.was_left = edited.was_left and not at_rest
        edited.anchor = next_anchor(
            layout, path, document.lines, cursor.line, self._history, snippets, edited.anchor, at_rest=at_rest
        )
        return layout.lay(edited.anchor, document.lines, cursor)

    def _snippets(self, opened: OpenDocument) -> tuple[Snippet, ...]:
        """The snippets of the document's last completion."""
        if not enabled_sources(self._documents.settings):
            return ()
        verdicts, chosen = opened.workspace.verdicts, opened.workspace.pool.selection(opened.session)
        usable = [each for each in chosen if not verdicts.is_excluded(each.uri)]
        self._sources |= {each.uri for each in usable}
        return tuple(each.snippet for each in usable)

    def _request(self, opened: OpenDocument, prompt: LaidPrompt, max_tokens: int) -> CompletionRequest:
        assert self._layout is not None, "no format is used"
        session = self._session(opened.document.uri)
        self._sessions.add(session)
        return CompletionRequest(
            session,
            Prompt("", "", marked=prompt.parts),
            max_tokens,
            _UNTIL_THE_END,
            stop_texts=self._layout.stop_texts,
            copies=prompt.draft,
        )

    async def _ask(self, edited: _Edited, cursor: Position, trigger: Trigger) -> NextEdit | None:
        layout, opened = self._layout, edited.opened
        assert layout is not None, "no format is used"
        document, path = opened.document, self._documents.shown_path(opened.document.uri)
        if not await self._is_allowed(opened):
            edited.reason = "the file is excluded"
            return None
        try:
            now = time.monotonic()
            at_rest = trigger == "acceptance" or edited.was_left or self._history.closes(now, path, cursor.line)
            at_rest |= layout.history_alone and now - opened.edited_at >= _TYPING_S
            prompt = self._lay(edited, layout, cursor, at_rest=at_rest)
        except BadInput as error:  # the document holds a marker, or has lines that are too long
            edited.reason = str(error)
            return None
        try:
            completion = await self._core.complete(self._request(opened, prompt, layout.max_tokens))
            edited.nothing_at = opened.edits, cursor
            answer = layout.read(prompt, completion.text, completion.finish_reason)
        except (MidfillError, BadAnswer) as error:
            edited.reason = str(error)
            if not isinstance(error, CoreUnavailable | Cancelled | BadAnswer):
                self._on_fault(str(error))
            return None
        replacement = edit_of(document.lines, prompt, answer)
        proposal = proposal_of(document.lines, prompt, answer, cursor, self._history.events, edited.refused)
        edited.reason = reason_not_to_show(proposal) or ""
        if edited.reason or replacement is None:
            return None
        return NextEdit(next(self._numbers), replacement, proposal)

    async def _is_allowed(self, opened: OpenDocument) -> bool:
        """Whether the document may enter its prompt; what others' edits told of one that is excluded now is dropped."""
        verdicts, uri = opened.workspace.verdicts, opened.document.uri
        others = self._recorded | self._sources
        await verdicts.look({uri, *others})
        if any(map(verdicts.is_excluded, others)):
            self._drop()
            return False
        return verdicts.own(uri) is None

    def _drop(self) -> None:
        """Forget what prompts held, here and in the core."""
        self._history, self._recorded, self._sources = History(), set(), set()
        for edited in self._edited.values():
            edited.anchor = edited.offer = edited.nothing_at = None
        for session in self._sessions:
            self._core.forget(session)
        self._sessions = set()

    def _follow(self, edited: _Edited, step: Replacement, document: Document) -> bool:
        """Follow an edit by the offer; whether the edit accepts it."""
        offer = edited.offer
        if offer is None:
            return False
        step = typed_at(offer.replacement, step, document)
        left = rebased(offer.replacement, step)
        if left is not None:
            edited.offer = replace(offer, replacement=left)
            return False
        if not _is_done(offer.replacement.edit, step, document):
            self._refuse(edited)
            return False
        if len(step.edit.text) + len(step.replaced) == 1:
            edited.offer, edited.completed = None, offer
            return False
        self._accept(edited)
        return True

    def _show(self, edited: _Edited) -> None:
        if not edited.was_shown:
            edited.was_shown = True
            self._on_outcome(edited.opened, "shown")

    def _accept(self, edited: _Edited) -> None:
        self._show(edited)
        self._on_outcome(edited.opened, "accepted")
        edited.offer = edited.completed = None
        self._accepted, self._rejections = True, 0

    def _refuse(self, edited: _Edited) -> None:
        assert edited.offer is not None, "nothing is offered"
        if edited.was_shown:
            edited.refused = refuse(edited.refused, edited.offer.proposal)
            self._rejections, self._rejected_at = self._rejections + 1, time.monotonic()
            self._on_outcome(edited.opened, "refused")
        edited.offer = None


def _before(document: Document, steps: Sequence[Replacement]) -> Document | None:
    """A copy of the document as it was before these edits; None if that cannot be told."""
    copy = replace(document, lines=list(document.lines))
    try:
        for edit, replaced in reversed(steps):
            copy.apply(Edit(edit.start, end_of(edit.start, edit.text), replaced))
    except BadInput:  # an edit has joined or split a line end of two characters
        return None
    return copy


def _neighbours(lines: Sequence[str], first: int, count: int) -> int:
    """A number for these lines, each with the one above it: by its sum over all changes, a text is known again."""
    around = lines[max(0, first - 1) : first + count + 1]
    pairs = itertools.pairwise(around if first else ["", *around])
    return sum(hash("".join(pair)) for pair in pairs)  # hashes of tuples add up to the same where lines change places


def _is_done(offered: Edit, step: Replacement, document: Document) -> bool:
    """Whether this edit within the offered one has left the document as that would."""
    if step.edit.start < offered.start or step.edit.end > offered.end:
        return False
    end = end_of(offered.start, offered.text)
    return end <= document.end and document.slice(offered.start, end) == offered.text
