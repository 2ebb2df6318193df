"""assistants: workflows as assistants, and those that programs make of them with a configuration of their own."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from pydantic import PydanticUserError, create_model
from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import PIPELINES, Client, served
from interlock.engine.client.served import Served
from interlock.graphs.pipeline import Pipeline
from interlock.state.errors import InterlockError
from interlock.web.answers import RefusedError, body
from interlock.web.api.answers import (
    MissingError,
    answer,
    assistant_of,
    fits,
    only,
    page,
    part,
    plain,
    texts,
    uuid_in,
    when,
)
from interlock.web.api.dialects import Dialect, dialect_of
from interlock.web.api.threads import Threads
from interlock.web.api.visitors import owned, shows, shows_graph, shows_system

_CHANGED = ("graph_id", "config", "context", "metadata", "name", "description")


@dataclass(frozen=True)
class Chosen:
    """The assistant of a run."""

    assistant: str
    graph: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Assistants:
    def __init__(self, client: Client, threads: Threads) -> None:
        self.client, self.home, self._threads = client, client.home, threads
        self._begun = time.time()

    def _graphs(self) -> dict[str, str]:
        """Workflow → what it does; those of the user, then ours."""
        own, _ = self.client.list_user_workflows()
        found = {**{one.name: one.summary for one in own if not one.problem}, **PIPELINES}
        return {name: about for name, about in found.items() if shows_graph(name)}

    def _system(self, graph: str, about: str) -> Served:
        kept = {
            "graph_id": graph,
            "name": graph,
            "description": about or None,
            "metadata": {"created_by": "system"},
        }
        return Served(assistant_of(graph), "", "", {**kept, "versions": [kept]}, self._begun)

    def all(self) -> list[Served]:
        """The newest first."""
        system = [self._system(graph, about) for graph, about in self._graphs().items()]
        made = [one for one in served.all_served(self.home, "assistant") if shows("assistants", one)]
        return [*made, *filter(shows_system, system)]

    def find(self, name: object) -> Served:
        """By id, or by the workflow's name. Raises `RefusedError`."""
        text = str(name)
        try:
            wanted = str(UUID(text))
        except ValueError:
            graphs = self._graphs()
            if text in graphs:
                return self._system(text, graphs[text])
            raise RefusedError(
                422, f"Invalid assistant: {text[:80]!r}. Must be one of: {_names(graphs)}"
            ) from None
        if (found := served.served(self.home, "assistant", wanted)) and shows("assistants", found):
            return found
        for graph, about in self._graphs().items():
            if assistant_of(graph) == wanted:
                return self._system(graph, about)
        raise MissingError("Thread or assistant not found.")

    def chosen(self, name: object) -> Chosen:
        if not name:
            raise RefusedError(422, "assistant_id is required: the id of an assistant, or a workflow's name.")
        found = self.find(name)
        about = part(found.body, "metadata")
        return Chosen(
            found.id, found.body["graph_id"], part(found.body, "config"), part(found.body, "context"), about
        )

    def dialect(self, graph: str) -> Dialect:
        """Return how programs speak to a workflow."""
        return dialect_of(self.client.workflow(graph))

    def shown(self, one: Served) -> dict[str, Any]:
        return {
            "assistant_id": one.id,
            "graph_id": one.body["graph_id"],
            "config": part(one.body, "config"),
            "context": part(one.body, "context"),
            "metadata": part(one.body, "metadata"),
            "name": one.body.get("name"),
            "created_at": when(one.at),
            "updated_at": when(one.body.get("updated", one.at)),
            "version": one.body.get("version", 1),
            "description": one.body.get("description"),
        }

    # The routes

    async def get(self, request: Request) -> Response:
        return answer(self.shown(self._named(request)))

    def _named(self, request: Request) -> Served:
        name = request.path_params["assistant"]
        try:
            UUID(name)
        except ValueError:
            if name not in self._graphs():
                raise RefusedError(422, "Invalid assistant ID: must be a UUID") from None
        try:
            found = self.find(name)
        except MissingError:
            found = None
        if found is None or not (found.body.get("app") or shows_system(found)):
            raise MissingError(f"Assistant {name} not found")
        return found

    def _chosen(self, given: Mapping[str, Any]) -> list[Served]:
        graph, name = given.get("graph_id"), str(given.get("name") or "").lower()
        return [
            one
            for one in self.all()
            if graph in (None, "", one.body["graph_id"])
            and name in str(one.body.get("name") or "").lower()
            and fits(part(given, "metadata"), one.body.get("metadata"))
        ]

    async def search(self, request: Request) -> Response:
        given = await body(request)
        fields = frozenset(texts(given, "select"))
        found = await asyncio.to_thread(self._chosen, given)
        by, first_is_least = given.get("sort_by", "created_at"), given.get("sort_order") == "asc"
        found.sort(key=lambda one: str(self.shown(one)[by] or "").lower(), reverse=not first_is_least)
        chosen, headers = page(given, found)
        return answer([only(self.shown(one), fields) for one in chosen], headers=headers)

    async def count(self, request: Request) -> Response:
        return answer(len(self._chosen(await body(request))))

    async def create(self, request: Request) -> Response:
        given = await body(request)
        graph = str(given.get("graph_id"))
        if graph not in (graphs := self._graphs()):
            raise MissingError(f"Graph {graph!r} not found. Expected one of {_names(graphs)}.")
        name = uuid_in(given.get("assistant_id") or uuid4(), "assistant")
        there = next((one for one in self.all() if one.id == name), None)
        if there is not None:
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Assistant {name} already exists")
            return answer(self.shown(there))
        kept = {**{key: given.get(key) for key in _CHANGED}, **configured(given)} | {
            "version": 1,
            "name": given.get("name") or "Untitled",
            **owned(),
        }
        kept["versions"] = [{**kept, "at": time.time()}]
        return answer(self.shown(served.serve(self.home, "assistant", name, kept)))

    def _own(self, request: Request) -> Served:
        found = self._named(request)
        if served.served(self.home, "assistant", found.id) is None:
            name = found.body["name"]
            raise RefusedError(
                409, f"The assistant of workflow {name!r} can't be changed: make another of its graph."
            )
        return found

    async def patch(self, request: Request) -> Response:
        found, given = self._own(request), await body(request)
        metadata = {**part(found.body, "metadata"), **part(given, "metadata")}
        given |= configured(given)
        changed = {key: given[key] for key in _CHANGED if given.get(key) is not None} | {"metadata": metadata}
        version = max(one["version"] for one in found.body["versions"]) + 1
        kept = {**{key: found.body.get(key) for key in _CHANGED}, **changed, "version": version}
        versions = [{**kept, "at": time.time()}, *found.body["versions"]]
        served.change(
            self.home, "assistant", found.id, {**kept, "versions": versions, "updated": time.time()}
        )
        return answer(self.shown(self.find(found.id)))

    async def delete(self, request: Request) -> Response:
        name = self._own(request).id
        if request.query_params.get("delete_threads") == "true":
            await self._threads.remove_all({"assistant_id": name})
        served.unserve(self.home, "assistant", name)
        return Response(status_code=204)

    async def versions(self, request: Request) -> Response:
        found, given = self._named(request), await body(request)
        shown = [
            {
                **self.shown(Served(found.id, "", "", one, found.at)),
                "created_at": when(one.get("at", found.at)),
            }
            for one in found.body["versions"]
            if fits(part(given, "metadata"), one.get("metadata"))
        ]
        return answer([{k: v for k, v in one.items() if k != "updated_at"} for one in page(given, shown)[0]])

    async def latest(self, request: Request) -> Response:
        found, given = self._own(request), await body(request)
        wanted = next((one for one in found.body["versions"] if one["version"] == given.get("version")), None)
        if wanted is None:
            raise MissingError(f"Assistant {found.id} has no version {given.get('version')!r}.")
        served.change(self.home, "assistant", found.id, {**wanted, "updated": time.time()})
        return answer(self.shown(self.find(found.id)))

    def _compiled(self, one: Served) -> tuple[Pipeline, Any]:
        """The workflow of an assistant, and its graph; one that a function makes, as the assistant configures it."""
        config: dict[str, Any] = {"configurable": {}, **part(one.body, "config")}
        found = self.client.workflow(one.body["graph_id"]).configured(config)
        return found, found.compile()

    async def schemas(self, request: Request) -> Response:
        one = self._named(request)

        def read() -> dict[str, Any]:
            workflow, graph = self._compiled(one)
            found = _schemas(graph)
            kinds = dialect_of(workflow).schemas(workflow)
            found |= {name: _or_none(kind.model_json_schema) for name, kind in kinds.items()}
            return {"graph_id": one.body["graph_id"], **found}

        return answer(await asyncio.to_thread(read))

    async def graph(self, request: Request) -> Response:
        one, xray = self._named(request), request.query_params.get("xray", "")
        depth: Any = (
            int(xray) if xray.isdecimal() else {"true": True, "false": False, "": False}.get(xray.lower())
        )
        if depth is None or xray == "0":
            raise RefusedError(422, f"xray must be true, false or a depth from 1, not {xray!r}.")

        def read() -> Any:
            drawn = self._compiled(one)[1].get_graph(xray=depth).to_json()
            for node in drawn["nodes"]:
                node["data"] = {"name": node["id"]} if "data" in node else None
            return {**drawn, "nodes": [{k: v for k, v in n.items() if v is not None} for n in drawn["nodes"]]}

        return answer(plain(await asyncio.to_thread(read)))

    async def subgraphs(self, request: Request) -> Response:
        one, namespace = self._named(request), request.path_params.get("namespace")
        deep = request.query_params.get("recurse", "").lower() == "true"

        def read() -> Any:
            found = self._compiled(one)[1].get_subgraphs(namespace=namespace, recurse=deep)
            return {name: _schemas(graph) for name, graph in found}

        return answer(await asyncio.to_thread(read))


def _schemas(graph: Any) -> dict[str, Any]:
    return {
        "input_schema": _or_none(graph.get_input_jsonschema),
        "output_schema": _or_none(graph.get_output_jsonschema),
        "state_schema": _or_none(lambda: _state_schema(graph)),
        "config_schema": _or_none(graph.get_context_jsonschema) or {},
        "context_schema": _or_none(graph.get_context_jsonschema),
    }


def _state_schema(graph: Any) -> Any:
    channels = graph.stream_channels_list
    fields: Any = {key: (graph.channels[key].UpdateType, None) for key in channels}
    made: Any = create_model(graph.get_name("state"), **fields)
    return made.model_json_schema()


def _or_none(read: Any) -> Any:
    """A schema; None: the types have none."""
    try:
        return read()
    except (PydanticUserError, InterlockError, TypeError, AttributeError):
        return None


def configured(given: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration and a context, each made of the other where only that is given. Raises `RefusedError`."""
    config, context = part(given, "config"), part(given, "context")
    known = part(config, "configurable")
    if context and known:
        raise RefusedError(400, "Cannot specify both configurable and context. Prefer setting context alone.")
    if context:
        return {"config": {**config, "configurable": context}, "context": context}
    return {"context": known} if known else {}


def _names(graphs: Mapping[str, str]) -> str:
    return ", ".join(sorted(graphs))
