"""The console's application: routes, and the common parts of all pages.

Pages are GET requests and change nothing. Posted forms are taken from the console's own pages only: language and colours and
the sign-in change a cookie of the same browser; actions change the store (console/actions), after they have shown what they
will do: each form has the token of its session, and what was shown is confirmed once (confirmations.py).

Each answer has a time limit; web_server.py closes the connection of a browser that does not read its answer.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.actions.action import Action, Given
from console.actions.dead_letters import DropDeadLetters, ResendDeadLetters
from console.actions.groups import Redeliver, ResetOffset, UpdateGroup
from console.actions.sending import Copy, Send
from console.actions.topics import CreateTopic, UpdateTopic
from console.actions.waiting import EndTransaction, Recall
from console.bodies.schemas import SCHEMA_BYTES_MAX, Schemas
from console.calls import PAGE_SECONDS, CallContext, Calls
from console.gateway_port import GatewayPort
from console.pages.dead_letter_export import export
from console.pages.find import FindFailedError, explain_page, find_page
from console.pages.groups import dead_letters_page, group_page, groups_page, members_page
from console.pages.lite_topics import lite_topics_page
from console.pages.message import download, message_page
from console.pages.page import Page, to_json
from console.pages.reports import Reports, report_file, reports_page
from console.pages.store import StoreHistory, replicas_page, store_page
from console.pages.tenants import tenants_page
from console.pages.topic import queue_page, topic_page
from console.pages.topics import topics_page
from console.pages.waiting import half_messages_page, scheduled_page
from console.parts.formats import error_text, visible
from console.question import Question
from console.rendering import STATIC_TYPES, THEMES, Renderer
from console.web.confirmations import Confirmations, session_of
from console.web.exchange import (
    FORM_BYTES_MAX,
    Failure,
    check_parameters,
    failure_of,
    here_of,
    json_response,
    own_path,
    parameters_by_path,
    read_content,
    read_form,
    set_cookie,
    sign_in_href,
    until_gone,
    wants_json,
)
from console.web.live import STREAM_SECONDS_MAX, LiveTails
from console.web.openapi import openapi
from console.web.page_threads import BrowserGoneError, PageThreads
from console.web.posted import read_posted
from console.web.request_guard import Asgi, RequestGuard, Scope
from console.web.sign_in import COOKIE, SignIn, is_token, metadata_of
from console.words import LANGUAGES, Words, language_of
from services.observing.telemetry import get_audit_logger
from services.status import code_of, to_status
from store.errors import InvalidArgumentError, PermissionDeniedError, ResourceBusyError, StoreError, StoreReadOnlyError

LANGUAGE_COOKIE, THEME_COOKIE, FORM_COOKIE = "reput_language", "reput_theme", "reput_form"
COOKIE_SECONDS = 365 * 86_400
EXPORT_PATH = "/groups/{consumer_group}/dead-letters/export"
BODY_PATH, TAIL_PATH = "/messages/{offset_msg_id}/body", "/topics/{topic}/tail"
ACTIONS: tuple[tuple[str, Action], ...] = (
    ("topics", Send()),
    ("topics", Copy()),
    ("topics", CreateTopic()),
    ("topics", UpdateTopic()),
    ("waiting", Recall()),
    ("waiting", EndTransaction()),
    ("groups", ResendDeadLetters()),
    ("groups", DropDeadLetters()),
    ("groups", ResetOffset()),
    ("groups", Redeliver()),
    ("groups", UpdateGroup()),
)
# A message of 4 MiB, and what stands beside it in a form.
ACTION_BYTES_MAX = (4 << 20) + (256 << 10)
# Forms that are read at once, each of up to ACTION_BYTES_MAX.
ACTION_COUNT_MAX = 4
AUDIT_CHARACTERS_MAX = 256
# Of what is kept until its confirmation, beside the texts in it.
SMALL_COMMAND_BYTES = 1_024

_log = structlog.get_logger("reput.console")

PageFunction = Callable[[Calls, Question], Page]


@dataclass(slots=True)
class ConsoleSource:
    """The parts that the console works with.

    Attributes:
        gateway: answers the requests of pages.
        sign_in: checks tokens.
        request_guard: refuses requests that do not come from a browser's own console page.
        reports: the pipeline's.
        schemas: of message bodies.
        trace_url: where a tracing tool shows a trace, with `{trace_id}`; empty: nowhere.
        clock: seconds since 1970.
        history: the samples of the page Store.
        acts: whether there are actions: not where the store is only read.
        audit: writes a line of the audit log, as a logger's `info`.
        monotonic: seconds, rising.
    """

    gateway: GatewayPort
    sign_in: SignIn
    request_guard: RequestGuard
    reports: Reports
    schemas: Schemas = field(default_factory=lambda: Schemas(None))
    trace_url: str = ""
    clock: Callable[[], float] = time.time
    history: StoreHistory = field(default_factory=StoreHistory)
    acts: Callable[[], bool] = lambda: True
    audit: Callable[..., object] = field(default_factory=lambda: get_audit_logger().info)
    monotonic: Callable[[], float] = time.monotonic


class ConsoleApp:
    """The application.

    Args:
        source: the gateway, the checks and the data of the pages.

    Attributes:
        application: for an ASGI server.
    """

    def __init__(self, source: ConsoleSource) -> None:
        self._source = source
        self._renderer = Renderer()
        self._threads = PageThreads()
        self._tails = LiveTails(self._threads)
        self._confirmations = Confirmations(source.monotonic)
        self._actions_being_read = 0
        self._parameters = parameters_by_path(openapi())
        pages: tuple[tuple[str, str, PageFunction], ...] = (
            ("/", "find", find_page),
            ("/messages/{offset_msg_id}", "find", functools.partial(message_page, source.schemas, source.trace_url)),
            ("/explain", "find", explain_page),
            ("/topics", "topics", topics_page),
            ("/topics/{topic}", "topics", topic_page),
            ("/topics/{topic}/lite-topics", "topics", lite_topics_page),
            ("/topics/{topic}/{queue_id}", "topics", queue_page),
            ("/groups", "groups", groups_page),
            ("/groups/{consumer_group}", "groups", group_page),
            ("/groups/{consumer_group}/members", "groups", members_page),
            ("/groups/{consumer_group}/dead-letters", "groups", dead_letters_page),
            ("/waiting", "waiting", scheduled_page),
            ("/half-messages", "waiting", half_messages_page),
            ("/replicas", "replicas", replicas_page),
            ("/tenants", "store", tenants_page),
            ("/store", "store", functools.partial(store_page, source.history)),
            ("/reports", "reports", functools.partial(reports_page, source.reports)),
        )
        routes = [Route(path, self._page(path, section, function)) for path, section, function in pages]
        routes[2:2] = [
            Route(BODY_PATH, self._download),
            Route(TAIL_PATH, self._tail),
        ]
        routes += [
            *(
                Route(f"/actions/{action.name}", self._action(section, action), methods=["GET", "POST"])
                for section, action in ACTIONS
            ),
            Route(EXPORT_PATH, self._export, methods=["GET", "POST"]),
            Route("/schemas", self._upload, methods=["POST"]),
            Route("/reports/{name}/page", self._report),
            Route("/static/{name}", self._static),
            Route("/openapi.json", self._openapi),
            Route("/api", self._api),
            Route("/preferences", self._preferences, methods=["POST"]),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/{rest:path}", self._nothing),
        ]
        starlette = Starlette(routes=routes)
        starlette.router.redirect_slashes = False
        self.application = source.request_guard.around(bounded(starlette))

    def close(self) -> None:
        """End live tails and threads."""
        self._tails.close()
        self._threads.close()

    def _page(self, path: str, section: str, function: PageFunction) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            refusal = await self._refused(request)
            if refusal is not None:
                return refusal
            context = self._context(request)
            make = functools.partial(self._make, request, path, section, function, context)
            try:
                return await self._threads.work(make, context, functools.partial(until_gone, request))
            except ResourceBusyError as error:
                return self._failed(request, section, error)
            except BrowserGoneError:
                return Response(status_code=499)

        return serve

    def _action(self, section: str, action: Action) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            refusal = await self._refused(request)
            if refusal is not None:
                return refusal
            context = self._context(request)
            try:
                if request.method == "POST":
                    await self._check_token(request, context)
                    given, form_token, confirmation = await self._posted(request)
                    # Goes on also when the browser has gone, since it cannot be taken back.
                    step = functools.partial(self._post, request, section, action, given, form_token, confirmation)
                    return await self._threads.work(functools.partial(step, context), context)
                make = functools.partial(self._form, request, section, action, context)
                return await self._threads.work(make, context, functools.partial(until_gone, request))
            except StoreError as error:
                return self._failed(request, section, error)
            except BrowserGoneError:
                return Response(status_code=499)

        return serve

    async def _check_token(self, request: Request, context: CallContext) -> None:
        """UnauthenticatedError for a token that is not valid, before a form of up to 4 MiB is read for it."""
        if self._source.sign_in.is_on:
            check = functools.partial(self._source.sign_in.name_of, self._token(request), context.peer())
            await self._threads.work(check, context)

    async def _posted(self, request: Request) -> tuple[Given, str, str]:
        """What was posted, the form's token, and the confirmation; empty texts where there is none."""
        if self._actions_being_read >= ACTION_COUNT_MAX:
            raise ResourceBusyError(f"{ACTION_COUNT_MAX} forms are being read, which is the limit: try again.")
        self._actions_being_read += 1
        try:
            content = await read_content(request, ACTION_BYTES_MAX)
        finally:
            self._actions_being_read -= 1
        if not content:
            raise InvalidArgumentError(
                f"The form is empty, has more than {ACTION_BYTES_MAX} bytes, or came too slowly: send less.",
                field="form",
            )
        posted = read_posted(request.headers.get("content-type", ""), content)
        fields = {name: "\n".join(values) for name, values in posted.fields.items()}
        form_token, confirmation = fields.pop("form_token", ""), fields.pop("confirmation", "")
        return Given(Question(fields, {}, int(self._source.clock() * 1000)), posted.files), form_token, confirmation

    def _form(self, request: Request, section: str, action: Action, context: CallContext) -> Response:
        """The form of an action, in a thread."""
        parameters = {name: value for name, value in request.query_params.items() if name != "format"}
        question = Question(parameters, {}, int(self._source.clock() * 1000))
        try:
            calls = self._acting(request, action, question, context)
            values = self._action_values(calls, action, question, self._words(request))
            check_parameters(parameters, frozenset(each.name for each in values["fields"]))
            return self._render(request, section, "action.html", values)
        except StoreError as error:
            return self._failed(request, section, error)
        except Exception as error:
            return self._broken(request, section, error)

    def _post(
        self,
        request: Request,
        section: str,
        action: Action,
        given: Given,
        form_token: str,
        confirmation: str,
        context: CallContext,
    ) -> Response:
        """What an action will do, or, confirmed, what it did; in a thread."""
        words, session = self._words(request), self._session(request)
        values: dict[str, Any] | None = None
        try:
            calls = self._acting(request, action, given.question, context)
            self._confirmations.check_form(session, form_token)
            if confirmation:
                return self._done(request, section, action, calls, session, confirmation)
            values = self._action_values(calls, action, given.question, words)
            plan = action.plan(calls, given, words)
            values["plan"] = plan
            if plan.command is not None:
                target = {name: given.question.text(name) for name in action.target}
                kept = plan.command, target
                posted_bytes = sum(len(value.encode()) for value in given.question.given().values())
                size_bytes = SMALL_COMMAND_BYTES + (plan.size_bytes or posted_bytes)
                values["confirmation"] = self._confirmations.keep(session, action.name, kept, size_bytes)
            if wants_json(request):
                return json_response({"plan": plan.answer, "confirmation": values["confirmation"]}, 200)
            return self._render(request, section, "action.html", values)
        except StoreError as error:
            if values is None:
                return self._failed(request, section, error)
            return self._failed(request, section, error, "action.html", values)
        except Exception as error:
            return self._broken(request, section, error)

    def _done(
        self, request: Request, section: str, action: Action, calls: Calls, session: str, confirmation: str
    ) -> Response:
        """Do what was confirmed; the audit log has it, also when it failed."""
        sign_in = self._source.sign_in
        client = sign_in.name_of(self._token(request), calls.context.peer()) if sign_in.is_on else ""
        command, target = self._confirmations.take(session, action.name, confirmation)
        outcome = "UNKNOWN"
        try:
            done = action.act(calls, command, self._words(request))
            outcome = "OK" if done.is_whole else "PARTLY"
        except StoreError as error:
            outcome = code_of(error).name
            raise
        finally:
            named = {name: visible(value)[:AUDIT_CHARACTERS_MAX] for name, value in target.items() if value}
            peer = calls.context.peer()
            self._source.audit(
                "audit.console", action=action.name, client=client, peer=peer, outcome=outcome, target=named
            )
        if wants_json(request):
            return json_response({"done": done.answer}, 200)
        values = {"action": action.name, "failure": None, "fields": (), "plan": None, "confirmation": "", "done": done}
        return self._render(request, section, "action.html", values)

    def _acting(self, request: Request, action: Action, question: Question, context: CallContext) -> Calls:
        """The calls of an action; StoreReadOnlyError, PermissionDeniedError when there is none for this caller."""
        calls = self._calls(request, context)
        if not calls.acts:
            raise StoreReadOnlyError(
                "The console of this installation only shows: its store is read-only, or REPUT_GATEWAY_CONSOLE_ACTIONS is off."
            )
        refused = [method for method, asked in action.right(question) if not calls.may(method, asked)]
        if refused:
            raise PermissionDeniedError(f"This client may not call {refused[0]} here: sign in as one that may.")
        return calls

    @staticmethod
    def _action_values(calls: Calls, action: Action, question: Question, words: Words) -> dict[str, Any]:
        return {
            "action": action.name,
            "failure": None,
            "fields": action.fields(calls, question, words),
            "plan": None,
            "confirmation": "",
            "done": None,
        }

    def _session(self, request: Request) -> str:
        """The session of the browser; empty when it has none."""
        token = self._token(request) if self._source.sign_in.is_on else ""
        cookie = request.cookies.get(FORM_COOKIE, "")
        return session_of(token, "" if self._source.sign_in.is_on else cookie[:64])

    def _broken(self, request: Request, section: str, error: Exception) -> Response:
        _log.error("console.page_failed", path=request.url.path, exc_info=error)
        return self._failed(request, section, StoreError(f"The page could not be made: {type(error).__name__}."))

    def _make(
        self, request: Request, path: str, section: str, function: PageFunction, context: CallContext
    ) -> Response:
        """A page, in a thread."""
        try:
            page = function(self._calls(request, context), self._question(request, path))
            if wants_json(request):
                return json_response(page.answer, page.status_code)
            return self._render(request, section, page.template, {"failure": None, **page.values}, page.status_code)
        except FindFailedError as failed:
            return self._failed(request, section, failed.error, "find.html", failed.values)
        except StoreError as error:
            return self._failed(request, section, error)
        except Exception as error:
            return self._broken(request, section, error)

    def _failed(
        self,
        request: Request,
        section: str,
        error: StoreError,
        template: str = "error.html",
        values: Mapping[str, Any] | None = None,
    ) -> Response:
        words = self._words(request)
        failure = failure_of(error, words)
        if failure.status_code == 401 and self._source.sign_in.is_on and not wants_json(request):
            return RedirectResponse(sign_in_href(request), 303)
        if wants_json(request):
            return json_response(to_json(to_status(error)), failure.status_code, failure)
        shown = {**(values or {}), "failure": failure}
        return self._render(request, section, template, shown, failure.status_code, failure)

    def _render(
        self,
        request: Request,
        section: str,
        template: str,
        values: Mapping[str, Any],
        status_code: int = 200,
        failure: Failure | None = None,
    ) -> Response:
        theme = request.cookies.get(THEME_COOKIE, "")
        here = here_of(request)
        frame = {
            "section": section,
            "theme": theme if theme in THEMES else "auto",
            "here": here,
            # Actions have no answer for programs, which use gRPC.
            "json_href": "" if here.startswith("/actions/") else f"{here}{'&' if '?' in here else '?'}format=json",
            "signed_in_as": "1" if self._source.sign_in.is_on and self._token(request) else "",
        }
        session, is_new = self._session(request), False

        def form_token() -> str:
            """The token of this page's forms; the browser gets a session for it."""
            nonlocal session, is_new
            if not session:
                session, is_new = self._confirmations.new_session(), True
            return self._confirmations.form_token(session)

        content = self._renderer.render(template, values, self._words(request), {**frame, "form_token": form_token})
        headers = {"Retry-After": "1"} if failure is not None and failure.may_retry else None
        response = Response(content, status_code, headers, "text/html")
        if is_new:
            set_cookie(request, response, FORM_COOKIE, session, None)
        return response

    async def _refused(self, request: Request) -> Response | None:
        """The answer to a request without a token where one is needed; None otherwise."""
        if not self._source.sign_in.is_on:
            return None
        token = self._token(request)
        if token:
            return None  # the calls check it
        if wants_json(request):
            return json_response({"code": 16, "message": "Sign in: send an API key or a JWT as a bearer token."}, 401)
        return RedirectResponse(sign_in_href(request), 303)

    async def _upload(self, request: Request) -> Response:
        """Keeps the schema that the script of a message's page sends; answers its digest."""
        content = await read_content(request, SCHEMA_BYTES_MAX)
        name = request.query_params.get("name", "")[:100]
        context = self._context(request)

        def kept() -> Response:
            try:
                if self._source.sign_in.is_on:
                    self._source.sign_in.name_of(self._token(request), context.peer())
                return json_response({"schema": self._source.schemas.upload(name, content)}, 200)
            except StoreError as error:
                status = failure_of(error, self._words(request)).status_code
                return json_response({"message": error_text(self._words(request), error)}, status)

        try:
            return await self._threads.work(kept, context)
        except ResourceBusyError as error:
            return json_response({"message": error_text(self._words(request), error)}, 429)

    async def _download(self, request: Request) -> Response:
        return await self._file(request, "find", lambda calls: download(calls, self._question(request, BODY_PATH)))

    async def _export(self, request: Request) -> Response:
        """The dead letters of a group as a file; those that are posted, or all."""
        ids = None
        if request.method == "POST":
            try:
                posted = read_posted(
                    request.headers.get("content-type", ""), await read_content(request, FORM_BYTES_MAX)
                )
            except StoreError as error:
                return self._failed(request, "groups", error)
            ids, kind = posted.fields.get("id", []), (posted.fields.get("as") or [""])[-1]

        def make(calls: Calls) -> Response:
            question = self._question(request, EXPORT_PATH)
            wanted = question.text("as") or "csv" if ids is None else kind
            return export(calls, question.path_text("consumer_group"), wanted, ids)

        return await self._file(request, "groups", make)

    async def _report(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._file(request, "reports", lambda calls: report_file(self._source.reports, calls, name))

    async def _file(self, request: Request, section: str, make: Callable[[Calls], Response]) -> Response:
        """A file, with the checks of a page."""
        refusal = await self._refused(request)
        if refusal is not None:
            return refusal
        context = self._context(request)

        def made() -> Response:
            try:
                return make(self._calls(request, context))
            except StoreError as error:
                return self._failed(request, section, error)

        try:
            return await self._threads.work(made, context)
        except ResourceBusyError as error:
            return self._failed(request, section, error)

    async def _tail(self, request: Request) -> Response:
        refusal = await self._refused(request)
        if refusal is not None:
            return refusal
        try:
            return self._tails.stream(
                request,
                lambda seconds: Calls(self._source.gateway, self._context(request, seconds)),
                self._question(request, TAIL_PATH),
                functools.partial(self._renderer.render, "tail_rows.html", words=self._words(request), frame={}),
            )
        except StoreError as error:
            return self._failed(request, "topics", error)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC_TYPES:
            return Response("There is no such file.\n", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(self._renderer.static[name], 200, headers, STATIC_TYPES[name])

    async def _openapi(self, _request: Request) -> Response:
        return json_response(openapi(), 200)

    async def _api(self, request: Request) -> Response:
        """What clients of the gateway call; made by tools/api_reference.py."""
        return json_response(openapi(), 200) if wants_json(request) else self._render(request, "", "api.html", {})

    async def _nothing(self, request: Request) -> Response:
        words = self._words(request)
        failure = Failure("NOT_FOUND", words("There is no such page"), request.url.path, "", 404)
        if wants_json(request):
            return json_response({"code": 5, "message": "There is no such page."}, 404)
        return self._render(request, "", "error.html", {"failure": failure}, 404)

    async def _preferences(self, request: Request) -> Response:
        form = await read_form(request)
        response = RedirectResponse(own_path(form.get("next", "")), 303)
        for name, cookie, choices in (("language", LANGUAGE_COOKIE, LANGUAGES), ("theme", THEME_COOKIE, THEMES)):
            if form.get(name) in choices:
                set_cookie(request, response, cookie, form[name], COOKIE_SECONDS)
        return response

    async def _sign_in(self, request: Request) -> Response:
        sign_in = self._source.sign_in
        if not sign_in.is_on:
            return RedirectResponse("/", 303)
        target = own_path(request.query_params.get("next", ""))
        problem = ""
        if request.method == "POST":
            token = (await read_form(request)).get("token", "").strip()
            context = self._context(request)
            try:
                await self._threads.work(functools.partial(sign_in.name_of, token, context.peer()), context)
                if not is_token(token):
                    raise InvalidArgumentError(
                        "The token does not fit into a browser's cookie: use another one.", field="token"
                    )
                response = RedirectResponse(target, 303)
                set_cookie(request, response, COOKIE, token, None)
                return response
            except StoreError as error:
                problem = error_text(self._words(request), error)
        values = {"failure": None, "problem": problem, "target": target}
        return self._render(request, "", "sign_in.html", values, 401 if problem else 200)

    async def _sign_out(self, request: Request) -> Response:
        await read_form(request)
        response = RedirectResponse("/sign-in" if self._source.sign_in.is_on else "/", 303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    def _context(self, request: Request, seconds: float = PAGE_SECONDS) -> CallContext:
        client = request.client
        peer = f"console:{client.host}:{client.port}" if client is not None else "console"
        return CallContext(seconds, metadata_of(self._token(request)), peer)

    def _calls(self, request: Request, context: CallContext) -> Calls:
        sign_in = self._source.sign_in
        token, peer = self._token(request), context.peer()
        sees_store = not sign_in.is_on or sign_in.sees_store(token, peer)
        may = functools.partial(sign_in.may, token, peer)
        return Calls(self._source.gateway, context, sees_store=sees_store, may=may, acts=self._source.acts())

    def _question(self, request: Request, path: str) -> Question:
        check_parameters(request.query_params.keys(), self._parameters[path])
        parameters = {name: value for name, value in request.query_params.items() if name != "format"}
        return Question(parameters, request.path_params, int(self._source.clock() * 1000))

    def _words(self, request: Request) -> Words:
        language = language_of(request.cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", ""))
        return Words(language)

    @staticmethod
    def _token(request: Request) -> str:
        """The token from the header of a program, otherwise from the browser's cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_token(token.strip()):
            return token.strip()
        kept = request.cookies.get(COOKIE, "")
        return kept if is_token(kept) else ""


# A page's own time and time for the browser to read it.
ANSWER_SECONDS_MAX = PAGE_SECONDS + 15.0
TAIL_SECONDS_MAX = STREAM_SECONDS_MAX + 15.0


def bounded(application: Asgi) -> Asgi:
    """The application with a time limit for each answer."""

    async def run(scope: Scope, receive: Any, send: Any) -> None:
        is_tail = scope["path"].startswith("/topics/") and scope["path"].endswith("/tail")
        try:
            async with asyncio.timeout(TAIL_SECONDS_MAX if is_tail else ANSWER_SECONDS_MAX):
                await application(scope, receive, send)
        except TimeoutError:
            _log.info("console.not_taken", path=scope["path"])  # the web server closes the connection

    return run
