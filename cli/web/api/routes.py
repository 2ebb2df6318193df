"""routes: the API's table of routes: method, path, the role that a token needs, and what answers."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute

from interlock.cli.web.answers import RefusedError, routed
from interlock.cli.web.api.answers import answer
from interlock.cli.web.api.assistants import Assistants
from interlock.cli.web.api.commands import Commands, Sockets
from interlock.cli.web.api.items import Items
from interlock.cli.web.api.lanes import Lanes
from interlock.cli.web.api.runs import Runs
from interlock.cli.web.api.threads import Threads
from interlock.engine.client import Client

TABLE = """
GET    /info                                          view    server.info
POST   /assistants/search                             view    assistants.search
POST   /assistants/count                              view    assistants.count
POST   /assistants                                    drive   assistants.create
GET    /assistants/{assistant}                        view    assistants.get
PATCH  /assistants/{assistant}                        drive   assistants.patch
DELETE /assistants/{assistant}                        drive   assistants.delete
GET    /assistants/{assistant}/schemas                view    assistants.schemas
GET    /assistants/{assistant}/graph                  view    assistants.graph
GET    /assistants/{assistant}/subgraphs              view    assistants.subgraphs
GET    /assistants/{assistant}/subgraphs/{namespace}  view    assistants.subgraphs
POST   /assistants/{assistant}/versions               view    assistants.versions
POST   /assistants/{assistant}/latest                 drive   assistants.latest
POST   /threads/search                                view    threads.search
POST   /threads/count                                 view    threads.count
POST   /threads/prune                                 drive   threads.prune
POST   /threads                                       drive   threads.create
GET    /threads/{thread}                              view    threads.get
PATCH  /threads/{thread}                              drive   threads.patch
DELETE /threads/{thread}                              drive   threads.delete
POST   /threads/{thread}/copy                         drive   threads.copy
GET    /threads/{thread}/state                        view    threads.get_state
POST   /threads/{thread}/state                        drive   threads.update_state
POST   /threads/{thread}/state/checkpoint             view    threads.state_at
GET    /threads/{thread}/state/{checkpoint}           view    threads.get_state
GET    /threads/{thread}/history                      view    threads.get_history
POST   /threads/{thread}/history                      view    threads.get_history
GET    /threads/{thread}/stream                       view    runs.join_thread
POST   /threads/{thread}/stream/events                view    commands.events
POST   /threads/{thread}/commands                     decide  commands.command
GET    /threads/{thread}/runs                         view    runs.list
POST   /threads/{thread}/runs                         decide  runs.create
POST   /threads/{thread}/runs/stream                  decide  runs.stream
POST   /threads/{thread}/runs/wait                    decide  runs.wait
POST   /threads/{thread}/runs/crons                   view    server.no_crons
GET    /threads/{thread}/runs/{run}                   view    runs.get
DELETE /threads/{thread}/runs/{run}                   drive   runs.delete
GET    /threads/{thread}/runs/{run}/join              view    runs.join
GET    /threads/{thread}/runs/{run}/stream            view    runs.join_stream
POST   /threads/{thread}/runs/{run}/cancel            drive   runs.cancel
POST   /runs                                          drive   runs.create
POST   /runs/stream                                   drive   runs.stream
POST   /runs/wait                                     drive   runs.wait
POST   /runs/batch                                    drive   runs.batch
POST   /runs/cancel                                   drive   runs.cancel_many
POST   /runs/crons                                    view    server.no_crons
POST   /runs/crons/search                             view    server.no_crons
POST   /runs/crons/count                              view    server.no_crons
PATCH  /runs/crons/{cron}                             view    server.no_crons
DELETE /runs/crons/{cron}                             view    server.no_crons
PUT    /store/items                                   drive   items.put
GET    /store/items                                   view    items.get
DELETE /store/items                                   drive   items.delete
POST   /store/items/search                            view    items.search
POST   /store/namespaces                              view    items.namespaces
"""


def routes(client: Client) -> tuple[list[BaseRoute], Callable[[], None]]:
    """The API's routes, and what goes on with the runs that an earlier server left: to be called in the loop."""
    threads, assistants = Threads(client), Assistants(client)
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
    socket = WebSocketRoute("/threads/{thread}/stream/events", Sockets(commands).serve)
    return [socket, *routed(TABLE, owners)], runs.resume


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
