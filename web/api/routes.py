"""routes: the API's table of routes: method, path, the role that a token needs, what answers, what an app's `auth` is
asked about, and what the body may hold."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute

from interlock.engine.client import Client
from interlock.web.api.app_auth import AppAuth, add_authorization
from interlock.web.api.assistants import Assistants
from interlock.web.api.drive_queues import DriveQueues
from interlock.web.api.payloads import json_response
from interlock.web.api.protocol_commands import ProtocolCommands, serve_event_socket
from interlock.web.api.request_schemas import add_body_validation
from interlock.web.api.runs import Runs
from interlock.web.api.store_items import StoreItems
from interlock.web.api.threads import Threads
from interlock.web.endpoints import RefusedError, build_routes

TABLE = """
GET    /info                                    view   server.get_info               - -
POST   /assistants/search                       view   assistants.search_assistants  assistants.search assistants
POST   /assistants/count                        view   assistants.count_assistants   assistants.search assistant.count
POST   /assistants                              drive  assistants.create_assistant   assistants.create assistant
GET    /assistants/{assistant}                  view   assistants.get_assistant      assistants.read -
PATCH  /assistants/{assistant}                  drive  assistants.update_assistant   assistants.update assistant.patch
DELETE /assistants/{assistant}                  drive  assistants.delete_assistant   assistants.delete -
GET    /assistants/{assistant}/schemas          view   assistants.get_schemas        assistants.read -
GET    /assistants/{assistant}/graph            view   assistants.get_graph          assistants.read -
GET    /assistants/{assistant}/subgraphs        view   assistants.get_subgraphs      assistants.read -
GET    /assistants/{assistant}/subgraphs/{namespace} view   assistants.get_subgraphs      assistants.read -
POST   /assistants/{assistant}/versions         view   assistants.list_versions      assistants.read versions
POST   /assistants/{assistant}/latest           drive  assistants.set_latest_version assistants.update latest
POST   /threads/search                          view   threads.search_threads        threads.search threads
POST   /threads/count                           view   threads.count_threads         threads.search thread.count
POST   /threads/prune                           drive  threads.prune_threads         threads.delete thread.prune
POST   /threads                                 drive  threads.create_thread         threads.create thread
GET    /threads/{thread}                        view   threads.get_thread            threads.read -
PATCH  /threads/{thread}                        drive  threads.update_thread         threads.update thread.patch
DELETE /threads/{thread}                        drive  threads.delete_thread         threads.delete -
POST   /threads/{thread}/copy                   drive  threads.copy_thread           threads.read -
GET    /threads/{thread}/state                  view   threads.get_state             threads.read -
POST   /threads/{thread}/state                  drive  threads.update_state          threads.update state
POST   /threads/{thread}/state/checkpoint       view   threads.get_checkpoint_state  threads.read state.at
GET    /threads/{thread}/state/{checkpoint}     view   threads.get_state             threads.read -
GET    /threads/{thread}/history                view   threads.get_history           threads.read -
POST   /threads/{thread}/history                view   threads.get_history           threads.read history
GET    /threads/{thread}/stream                 view   runs.stream_thread            threads.read -
POST   /threads/{thread}/stream/events          view   commands.stream_events        threads.read -
POST   /threads/{thread}/commands               decide commands.handle_command       threads.create_run -
GET    /threads/{thread}/runs                   view   runs.list_runs                threads.read -
POST   /threads/{thread}/runs                   decide runs.create_run               threads.create_run run
POST   /threads/{thread}/runs/stream            decide runs.create_and_stream_run        threads.create_run run
POST   /threads/{thread}/runs/wait              decide runs.create_and_await_run          threads.create_run run
POST   /threads/{thread}/runs/crons             view   server.refuse_crons           - -
GET    /threads/{thread}/runs/{run}             view   runs.get_run                  threads.read -
DELETE /threads/{thread}/runs/{run}             drive  runs.delete_run               threads.delete -
GET    /threads/{thread}/runs/{run}/join        view   runs.join_run                 threads.read -
GET    /threads/{thread}/runs/{run}/stream      view   runs.join_run_stream          threads.read -
POST   /threads/{thread}/runs/{run}/cancel      drive  runs.cancel_run               threads.update -
POST   /runs                                    drive  runs.create_run               threads.create_run run.alone
POST   /runs/stream                             drive  runs.create_and_stream_run        threads.create_run run.alone
POST   /runs/wait                               drive  runs.create_and_await_run          threads.create_run run.alone
POST   /runs/batch                              drive  runs.create_run_batch             threads.create_run runs
POST   /runs/cancel                             drive  runs.cancel_runs              threads.update runs.cancel
POST   /runs/crons                              view   server.refuse_crons           - -
POST   /runs/crons/search                       view   server.refuse_crons           - -
POST   /runs/crons/count                        view   server.refuse_crons           - -
PATCH  /runs/crons/{cron}                       view   server.refuse_crons           - -
DELETE /runs/crons/{cron}                       view   server.refuse_crons           - -
PUT    /store/items                             drive  items.put_item                store.put item
GET    /store/items                             view   items.get_item                store.get -
DELETE /store/items                             drive  items.delete_item             store.delete item.delete
POST   /store/items/search                      view   items.search_items            store.search item.search
POST   /store/namespaces                        view   items.list_namespaces         store.list_namespaces namespaces
"""


def build_routes_and_resume_callback(
    client: Client, app: Any = None, app_auth: AppAuth | None = None
) -> tuple[list[BaseRoute], Callable[[], None]]:
    """Return the API's routes, and what goes on with the runs that an earlier server left: to be called in the loop.

    `app`: what a langgraph.json asks of a server (`LangGraphApp`); it may close some. `app_auth`: lets programs in
    instead of tokens.
    """
    threads = Threads(client)
    assistants = Assistants(client, threads)
    queues = DriveQueues(threads, assistants)
    runs = Runs(queues)
    commands = ProtocolCommands(runs)
    owners = {
        "server": _ServerInfo(),
        "assistants": assistants,
        "threads": threads,
        "runs": runs,
        "commands": commands,
        "items": StoreItems(client),
    }
    socket = WebSocketRoute(
        "/threads/{thread}/stream/events", partial(serve_event_socket, commands, app_auth)
    )
    made = build_routes(
        TABLE, owners, wrap_handler=partial(_add_validation_and_authorization, app_auth=app_auth)
    )
    closed = tuple(path for name, path in _CLOSED.items() if app and app.http.get(name))
    return [one for one in (socket, *made) if not one.path.startswith(closed)], runs.resume_abandoned_runs


def _add_validation_and_authorization(
    handler: Any, resource_action: str, body_kind: str, app_auth: AppAuth | None
) -> Any:
    return add_body_validation(add_authorization(handler, resource_action, app_auth), body_kind)


_CLOSED = {
    "disable_assistants": "/assistants",
    "disable_threads": "/threads",
    "disable_runs": "/runs",
    "disable_store": "/store",
    "disable_meta": "/info",
}
"""A field of `http` in a langgraph.json → the paths that it closes."""


class _ServerInfo:
    async def get_info(self, _: Request) -> Response:
        flags: dict[str, Any] = {"assistants": True, "crons": False, "langsmith": False}
        ours, theirs = version("interlock-agent"), version("langgraph")
        return json_response({"version": ours, "langgraph_py_version": theirs, "flags": flags})

    async def refuse_crons(self, _: Request) -> Response:
        text = (
            "Crons aren't supported. Let a timer of your system start runs: `interlock run`, or POST /runs."
        )
        raise RefusedError(404, text)
