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
from interlock.web.answers import RefusedError, routed
from interlock.web.api.answers import answer
from interlock.web.api.assistants import Assistants
from interlock.web.api.bodies import checking
from interlock.web.api.commands import Commands, Sockets
from interlock.web.api.items import Items
from interlock.web.api.lanes import Lanes
from interlock.web.api.runs import Runs
from interlock.web.api.threads import Threads
from interlock.web.api.visitors import Visitors, permitting

TABLE = """
GET    /info                                          view   server.info          -                   -
POST   /assistants/search                             view   assistants.search    assistants.search   assistants
POST   /assistants/count                              view   assistants.count     assistants.search   assistant.count
POST   /assistants                                    drive  assistants.create    assistants.create   assistant
GET    /assistants/{assistant}                        view   assistants.get       assistants.read     -
PATCH  /assistants/{assistant}                        drive  assistants.patch     assistants.update   assistant.patch
DELETE /assistants/{assistant}                        drive  assistants.delete    assistants.delete   -
GET    /assistants/{assistant}/schemas                view   assistants.schemas   assistants.read     -
GET    /assistants/{assistant}/graph                  view   assistants.graph     assistants.read     -
GET    /assistants/{assistant}/subgraphs              view   assistants.subgraphs assistants.read     -
GET    /assistants/{assistant}/subgraphs/{namespace}  view   assistants.subgraphs assistants.read     -
POST   /assistants/{assistant}/versions               view   assistants.versions  assistants.read     versions
POST   /assistants/{assistant}/latest                 drive  assistants.latest    assistants.update   latest
POST   /threads/search                                view   threads.search       threads.search      threads
POST   /threads/count                                 view   threads.count        threads.search      thread.count
POST   /threads/prune                                 drive  threads.prune        threads.delete      thread.prune
POST   /threads                                       drive  threads.create       threads.create      thread
GET    /threads/{thread}                              view   threads.get          threads.read        -
PATCH  /threads/{thread}                              drive  threads.patch        threads.update      thread.patch
DELETE /threads/{thread}                              drive  threads.delete       threads.delete      -
POST   /threads/{thread}/copy                         drive  threads.copy         threads.read        -
GET    /threads/{thread}/state                        view   threads.get_state    threads.read        -
POST   /threads/{thread}/state                        drive  threads.update_state threads.update      state
POST   /threads/{thread}/state/checkpoint             view   threads.state_at     threads.read        state.at
GET    /threads/{thread}/state/{checkpoint}           view   threads.get_state    threads.read        -
GET    /threads/{thread}/history                      view   threads.get_history  threads.read        -
POST   /threads/{thread}/history                      view   threads.get_history  threads.read        history
GET    /threads/{thread}/stream                       view   runs.join_thread     threads.read        -
POST   /threads/{thread}/stream/events                view   commands.events      threads.read        -
POST   /threads/{thread}/commands                     decide commands.command     threads.create_run  -
GET    /threads/{thread}/runs                         view   runs.list            threads.read        -
POST   /threads/{thread}/runs                         decide runs.create          threads.create_run  run
POST   /threads/{thread}/runs/stream                  decide runs.stream          threads.create_run  run
POST   /threads/{thread}/runs/wait                    decide runs.wait            threads.create_run  run
POST   /threads/{thread}/runs/crons                   view   server.no_crons      -                   -
GET    /threads/{thread}/runs/{run}                   view   runs.get             threads.read        -
DELETE /threads/{thread}/runs/{run}                   drive  runs.delete          threads.delete      -
GET    /threads/{thread}/runs/{run}/join              view   runs.join            threads.read        -
GET    /threads/{thread}/runs/{run}/stream            view   runs.join_stream     threads.read        -
POST   /threads/{thread}/runs/{run}/cancel            drive  runs.cancel          threads.update      -
POST   /runs                                          drive  runs.create          threads.create_run  run.alone
POST   /runs/stream                                   drive  runs.stream          threads.create_run  run.alone
POST   /runs/wait                                     drive  runs.wait            threads.create_run  run.alone
POST   /runs/batch                                    drive  runs.batch           threads.create_run  runs
POST   /runs/cancel                                   drive  runs.cancel_many     threads.update      runs.cancel
POST   /runs/crons                                    view   server.no_crons      -                   -
POST   /runs/crons/search                             view   server.no_crons      -                   -
POST   /runs/crons/count                              view   server.no_crons      -                   -
PATCH  /runs/crons/{cron}                             view   server.no_crons      -                   -
DELETE /runs/crons/{cron}                             view   server.no_crons      -                   -
PUT    /store/items                                   drive  items.put            store.put           item
GET    /store/items                                   view   items.get            store.get           -
DELETE /store/items                                   drive  items.delete         store.delete        item.delete
POST   /store/items/search                            view   items.search         store.search        item.search
POST   /store/namespaces                              view   items.namespaces     store.list_namespaces namespaces
"""


def routes(
    client: Client, app: Any = None, visitors: Visitors | None = None
) -> tuple[list[BaseRoute], Callable[[], None]]:
    """The API's routes, and what goes on with the runs that an earlier server left: to be called in the loop.

    `app`: what a langgraph.json asks of a server (`ListedApp`); it may close some. `visitors`: lets programs in
    instead of tokens.
    """
    threads = Threads(client)
    assistants = Assistants(client, threads)
    lanes = Lanes(threads, assistants)
    runs = Runs(lanes)
    commands = Commands(runs)
    owners = {
        "server": _Server(),
        "assistants": assistants,
        "threads": threads,
        "runs": runs,
        "commands": commands,
        "items": Items(client),
    }
    socket = WebSocketRoute("/threads/{thread}/stream/events", Sockets(commands, visitors).serve)
    made = routed(TABLE, owners, wrap=partial(_checked, visitors=visitors))
    closed = tuple(path for name, path in _CLOSED.items() if app and app.http.get(name))
    return [one for one in (socket, *made) if not one.path.startswith(closed)], runs.resume


def _checked(answer: Any, needs: str, kind: str, visitors: Visitors | None) -> Any:
    return checking(permitting(answer, needs, visitors), kind)


_CLOSED = {
    "disable_assistants": "/assistants",
    "disable_threads": "/threads",
    "disable_runs": "/runs",
    "disable_store": "/store",
    "disable_meta": "/info",
}
"""A field of `http` in a langgraph.json → the paths that it closes."""


class _Server:
    async def info(self, _: Request) -> Response:
        flags: dict[str, Any] = {"assistants": True, "crons": False, "langsmith": False}
        ours, theirs = version("interlock-agent"), version("langgraph")
        return answer({"version": ours, "langgraph_py_version": theirs, "flags": flags})

    async def no_crons(self, _: Request) -> Response:
        text = (
            "Crons aren't supported. Let a timer of your system start runs: `interlock run`, or POST /runs."
        )
        raise RefusedError(404, text)
