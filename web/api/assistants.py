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
from interlock.web.api.app_auth import can_see_graph, can_see_system_assistant, is_visible, ownership_fields
from interlock.web.api.payloads import (
    NotFoundError,
    assistant_id_of_workflow,
    iso_time,
    json_response,
    matches_filter,
    paginate,
    parse_uuid,
    read_object,
    read_strings,
    select_fields,
    to_json_types,
)
from interlock.web.api.prompt_dialect import Dialect, dialect_of_workflow
from interlock.web.api.threads import Threads
from interlock.web.endpoints import RefusedError, read_body

_EDITABLE_FIELDS = ("graph_id", "config", "context", "metadata", "name", "description")


@dataclass(frozen=True)
class AssistantChoice:
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

    def _visible_graphs(self) -> dict[str, str]:
        """Workflow → what it does; those of the user, then ours."""
        own, _ = self.client.list_user_workflows()
        found = {**{one.name: one.summary for one in own if not one.problem}, **PIPELINES}
        return {name: about for name, about in found.items() if can_see_graph(name)}

    def _system_assistant(self, graph: str, about: str) -> Served:
        kept = {
            "graph_id": graph,
            "name": graph,
            "description": about or None,
            "metadata": {"created_by": "system"},
        }
        return Served(assistant_id_of_workflow(graph), "", "", {**kept, "versions": [kept]}, self._begun)

    def list_visible(self) -> list[Served]:
        """The newest first."""
        system = [self._system_assistant(graph, about) for graph, about in self._visible_graphs().items()]
        made = [one for one in served.all_served(self.home, "assistant") if is_visible("assistants", one)]
        return [*made, *filter(can_see_system_assistant, system)]

    def find_assistant(self, name: object) -> Served:
        """By id, or by the workflow's name. Raises `RefusedError`."""
        text = str(name)
        try:
            wanted = str(UUID(text))
        except ValueError:
            graphs = self._visible_graphs()
            if text in graphs:
                return self._system_assistant(text, graphs[text])
            raise RefusedError(
                422, f"Invalid assistant: {text[:80]!r}. Must be one of: {_joined_names(graphs)}"
            ) from None
        if (found := served.served(self.home, "assistant", wanted)) and is_visible("assistants", found):
            return found
        for graph, about in self._visible_graphs().items():
            if assistant_id_of_workflow(graph) == wanted:
                return self._system_assistant(graph, about)
        raise NotFoundError("Thread or assistant not found.")

    def choose_assistant(self, name: object) -> AssistantChoice:
        if not name:
            raise RefusedError(422, "assistant_id is required: the id of an assistant, or a workflow's name.")
        found = self.find_assistant(name)
        about = read_object(found.body, "metadata")
        return AssistantChoice(
            found.id,
            found.body["graph_id"],
            read_object(found.body, "config"),
            read_object(found.body, "context"),
            about,
        )

    def dialect_of_graph(self, graph: str) -> Dialect:
        """Return how programs speak to a workflow."""
        return dialect_of_workflow(self.client.workflow(graph))

    def assistant_json(self, one: Served) -> dict[str, Any]:
        return {
            "assistant_id": one.id,
            "graph_id": one.body["graph_id"],
            "config": read_object(one.body, "config"),
            "context": read_object(one.body, "context"),
            "metadata": read_object(one.body, "metadata"),
            "name": one.body.get("name"),
            "created_at": iso_time(one.at),
            "updated_at": iso_time(one.body.get("updated", one.at)),
            "version": one.body.get("version", 1),
            "description": one.body.get("description"),
        }

    # The routes

    async def get_assistant(self, request: Request) -> Response:
        return json_response(self.assistant_json(self._assistant_from_path(request)))

    def _assistant_from_path(self, request: Request) -> Served:
        name = request.path_params["assistant"]
        try:
            UUID(name)
        except ValueError:
            if name not in self._visible_graphs():
                raise RefusedError(422, "Invalid assistant ID: must be a UUID") from None
        try:
            found = self.find_assistant(name)
        except NotFoundError:
            found = None
        if found is None or not (found.body.get("app") or can_see_system_assistant(found)):
            raise NotFoundError(f"Assistant {name} not found")
        return found

    def _matching_assistants(self, given: Mapping[str, Any]) -> list[Served]:
        graph, name = given.get("graph_id"), str(given.get("name") or "").lower()
        return [
            one
            for one in self.list_visible()
            if graph in (None, "", one.body["graph_id"])
            and name in str(one.body.get("name") or "").lower()
            and matches_filter(read_object(given, "metadata"), one.body.get("metadata"))
        ]

    async def search_assistants(self, request: Request) -> Response:
        given = await read_body(request)
        fields = frozenset(read_strings(given, "select"))
        found = await asyncio.to_thread(self._matching_assistants, given)
        by, first_is_least = given.get("sort_by", "created_at"), given.get("sort_order") == "asc"
        found.sort(
            key=lambda one: str(self.assistant_json(one)[by] or "").lower(), reverse=not first_is_least
        )
        chosen, headers = paginate(given, found)
        return json_response(
            [select_fields(self.assistant_json(one), fields) for one in chosen], headers=headers
        )

    async def count_assistants(self, request: Request) -> Response:
        return json_response(len(self._matching_assistants(await read_body(request))))

    async def create_assistant(self, request: Request) -> Response:
        given = await read_body(request)
        graph = str(given.get("graph_id"))
        if graph not in (graphs := self._visible_graphs()):
            raise NotFoundError(f"Graph {graph!r} not found. Expected one of {_joined_names(graphs)}.")
        name = parse_uuid(given.get("assistant_id") or uuid4(), "assistant")
        there = next((one for one in self.list_visible() if one.id == name), None)
        if there is not None:
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Assistant {name} already exists")
            return json_response(self.assistant_json(there))
        kept = {**{key: given.get(key) for key in _EDITABLE_FIELDS}, **merge_config_and_context(given)} | {
            "version": 1,
            "name": given.get("name") or "Untitled",
            **ownership_fields(),
        }
        kept["versions"] = [{**kept, "at": time.time()}]
        return json_response(self.assistant_json(served.serve(self.home, "assistant", name, kept)))

    def _editable_assistant(self, request: Request) -> Served:
        found = self._assistant_from_path(request)
        if served.served(self.home, "assistant", found.id) is None:
            name = found.body["name"]
            raise RefusedError(
                409, f"The assistant of workflow {name!r} can't be changed: make another of its graph."
            )
        return found

    async def update_assistant(self, request: Request) -> Response:
        found, given = self._editable_assistant(request), await read_body(request)
        metadata = {**read_object(found.body, "metadata"), **read_object(given, "metadata")}
        given |= merge_config_and_context(given)
        changed = {key: given[key] for key in _EDITABLE_FIELDS if given.get(key) is not None} | {
            "metadata": metadata
        }
        version = max(one["version"] for one in found.body["versions"]) + 1
        kept = {**{key: found.body.get(key) for key in _EDITABLE_FIELDS}, **changed, "version": version}
        versions = [{**kept, "at": time.time()}, *found.body["versions"]]
        served.change(
            self.home, "assistant", found.id, {**kept, "versions": versions, "updated": time.time()}
        )
        return json_response(self.assistant_json(self.find_assistant(found.id)))

    async def delete_assistant(self, request: Request) -> Response:
        name = self._editable_assistant(request).id
        if request.query_params.get("delete_threads") == "true":
            await self._threads.remove_matching({"assistant_id": name})
        served.unserve(self.home, "assistant", name)
        return Response(status_code=204)

    async def list_versions(self, request: Request) -> Response:
        found, given = self._assistant_from_path(request), await read_body(request)
        shown = [
            {
                **self.assistant_json(Served(found.id, "", "", one, found.at)),
                "created_at": iso_time(one.get("at", found.at)),
            }
            for one in found.body["versions"]
            if matches_filter(read_object(given, "metadata"), one.get("metadata"))
        ]
        return json_response(
            [{k: v for k, v in one.items() if k != "updated_at"} for one in paginate(given, shown)[0]]
        )

    async def set_latest_version(self, request: Request) -> Response:
        found, given = self._editable_assistant(request), await read_body(request)
        wanted = next((one for one in found.body["versions"] if one["version"] == given.get("version")), None)
        if wanted is None:
            raise NotFoundError(f"Assistant {found.id} has no version {given.get('version')!r}.")
        served.change(self.home, "assistant", found.id, {**wanted, "updated": time.time()})
        return json_response(self.assistant_json(self.find_assistant(found.id)))

    def _compile_graph(self, one: Served) -> tuple[Pipeline, Any]:
        """The workflow of an assistant, and its graph; one that a function makes, as the assistant configures it."""
        config: dict[str, Any] = {"configurable": {}, **read_object(one.body, "config")}
        found = self.client.workflow(one.body["graph_id"]).with_config(config)
        return found, found.compile()

    async def get_schemas(self, request: Request) -> Response:
        one = self._assistant_from_path(request)

        def read() -> dict[str, Any]:
            workflow, graph = self._compile_graph(one)
            found = _graph_schemas(graph)
            kinds = dialect_of_workflow(workflow).schemas(workflow)
            found |= {name: _schema_or_none(kind.model_json_schema) for name, kind in kinds.items()}
            return {"graph_id": one.body["graph_id"], **found}

        return json_response(await asyncio.to_thread(read))

    async def get_graph(self, request: Request) -> Response:
        one, xray = self._assistant_from_path(request), request.query_params.get("xray", "")
        depth: Any = (
            int(xray) if xray.isdecimal() else {"true": True, "false": False, "": False}.get(xray.lower())
        )
        if depth is None or xray == "0":
            raise RefusedError(422, f"xray must be true, false or a depth from 1, not {xray!r}.")

        def read() -> Any:
            drawn = self._compile_graph(one)[1].get_graph(xray=depth).to_json()
            for node in drawn["nodes"]:
                node["data"] = {"name": node["id"]} if "data" in node else None
            return {**drawn, "nodes": [{k: v for k, v in n.items() if v is not None} for n in drawn["nodes"]]}

        return json_response(to_json_types(await asyncio.to_thread(read)))

    async def get_subgraphs(self, request: Request) -> Response:
        one, namespace = self._assistant_from_path(request), request.path_params.get("namespace")
        deep = request.query_params.get("recurse", "").lower() == "true"

        def read() -> Any:
            found = self._compile_graph(one)[1].get_subgraphs(namespace=namespace, recurse=deep)
            return {name: _graph_schemas(graph) for name, graph in found}

        return json_response(await asyncio.to_thread(read))


def _graph_schemas(graph: Any) -> dict[str, Any]:
    return {
        "input_schema": _schema_or_none(graph.get_input_jsonschema),
        "output_schema": _schema_or_none(graph.get_output_jsonschema),
        "state_schema": _schema_or_none(lambda: _build_state_schema(graph)),
        "config_schema": _schema_or_none(graph.get_context_jsonschema) or {},
        "context_schema": _schema_or_none(graph.get_context_jsonschema),
    }


def _build_state_schema(graph: Any) -> Any:
    channels = graph.stream_channels_list
    fields: Any = {key: (graph.channels[key].UpdateType, None) for key in channels}
    made: Any = create_model(graph.get_name("state"), **fields)
    return made.model_json_schema()


def _schema_or_none(read: Any) -> Any:
    """A schema; None: the types have none."""
    try:
        return read()
    except (PydanticUserError, InterlockError, TypeError, AttributeError):
        return None


def merge_config_and_context(given: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration and a context, each made of the other where only that is given. Raises `RefusedError`."""
    config, context = read_object(given, "config"), read_object(given, "context")
    known = read_object(config, "configurable")
    if context and known:
        raise RefusedError(400, "Cannot specify both configurable and context. Prefer setting context alone.")
    if context:
        return {"config": {**config, "configurable": context}, "context": context}
    return {"context": known} if known else {}


def _joined_names(graphs: Mapping[str, str]) -> str:
    return ", ".join(sorted(graphs))
