"""assistants: workflows as assistants, and those that programs make of them with a configuration of their own."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from pydantic import PydanticUserError, create_model
from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import PIPELINES, Client, api_rows
from interlock.graphs.pipeline import Pipeline
from interlock.state.errors import InterlockError
from interlock.web.api.app_auth import can_see_graph, can_see_system_assistant, is_visible, ownership_fields
from interlock.web.api.payloads import (
    NotFoundError,
    assistant_id_for_workflow,
    iso_time,
    json_response,
    matches_filter,
    paginate,
    parse_uuid,
    read_object_field,
    read_string_list_field,
    select_fields,
)
from interlock.web.api.prompt_dialect import dialect_for_workflow
from interlock.web.api.threads import Threads
from interlock.web.endpoints import RefusedError, read_json_body

_EDITABLE_FIELDS = ("graph_id", "config", "context", "metadata", "name", "description")


class Assistants:
    def __init__(self, client: Client, threads: Threads) -> None:
        self.client, self.home, self._threads = client, client.home, threads
        self._begun = time.time()

    def _visible_graph_summaries(self) -> dict[str, str]:
        """Return what each workflow that a request sees does, by its name: those of the user, then ours."""
        own, _ = self.client.list_user_workflows()
        found = {**{one.name: one.summary for one in own if not one.problem}, **PIPELINES}
        return {name: about for name, about in found.items() if can_see_graph(name)}

    def _build_system_assistant(self, graph: str, summary: str) -> api_rows.ApiRow:
        kept = {
            "graph_id": graph,
            "name": graph,
            "description": summary or None,
            "metadata": {"created_by": "system"},
        }
        return api_rows.ApiRow(
            assistant_id_for_workflow(graph), "", "", {**kept, "versions": [kept]}, self._begun
        )

    def list_visible_assistants(self) -> list[api_rows.ApiRow]:
        """Return the assistants that a request sees, the newest first."""
        system = [
            self._build_system_assistant(graph, about)
            for graph, about in self._visible_graph_summaries().items()
        ]
        made = [
            one for one in api_rows.list_api_rows(self.home, "assistant") if is_visible("assistants", one)
        ]
        return [*made, *filter(can_see_system_assistant, system)]

    def resolve_assistant(self, id_or_graph: object) -> api_rows.ApiRow:
        """Return the assistant with this id, or of the workflow with this name. Raises `RefusedError`."""
        text = str(id_or_graph)
        try:
            wanted = str(UUID(text))
        except ValueError:
            graphs = self._visible_graph_summaries()
            if text in graphs:
                return self._build_system_assistant(text, graphs[text])
            raise RefusedError(
                422, f"Invalid assistant: {text[:80]!r}. Must be one of: {', '.join(sorted(graphs))}"
            ) from None
        if (found := api_rows.find_api_row(self.home, "assistant", wanted)) and is_visible(
            "assistants", found
        ):
            return found
        for graph, about in self._visible_graph_summaries().items():
            if assistant_id_for_workflow(graph) == wanted:
                return self._build_system_assistant(graph, about)
        raise NotFoundError("Thread or assistant not found.")

    def require_assistant(self, id_or_graph: object) -> api_rows.ApiRow:
        """Return the assistant of a run. Raises `RefusedError`."""
        if not id_or_graph:
            raise RefusedError(422, "assistant_id is required: the id of an assistant, or a workflow's name.")
        return self.resolve_assistant(id_or_graph)

    def assistant_json(self, assistant: api_rows.ApiRow) -> dict[str, Any]:
        return {
            "assistant_id": assistant.id,
            "graph_id": assistant.body["graph_id"],
            "config": read_object_field(assistant.body, "config"),
            "context": read_object_field(assistant.body, "context"),
            "metadata": read_object_field(assistant.body, "metadata"),
            "name": assistant.body.get("name"),
            "created_at": iso_time(assistant.at),
            "updated_at": iso_time(assistant.body.get("updated", assistant.at)),
            "version": assistant.body.get("version", 1),
            "description": assistant.body.get("description"),
        }

    # The routes

    async def get_assistant(self, request: Request) -> Response:
        return json_response(self.assistant_json(self._assistant_from_path(request)))

    def _assistant_from_path(self, request: Request) -> api_rows.ApiRow:
        name = request.path_params["assistant"]
        try:
            UUID(name)
        except ValueError:
            if name not in self._visible_graph_summaries():
                raise RefusedError(422, "Invalid assistant ID: must be a UUID") from None
        with suppress(NotFoundError):
            found = self.resolve_assistant(name)
            if found.body.get("app") or can_see_system_assistant(found):
                return found
        raise NotFoundError(f"Assistant {name} not found")

    def _list_matching_assistants(self, body: Mapping[str, Any]) -> list[api_rows.ApiRow]:
        graph, name = body.get("graph_id"), str(body.get("name") or "").lower()
        return [
            one
            for one in self.list_visible_assistants()
            if graph in (None, "", one.body["graph_id"])
            and name in str(one.body.get("name") or "").lower()
            and matches_filter(read_object_field(body, "metadata"), one.body.get("metadata"))
        ]

    def search_assistants(self, request: Request) -> Response:
        given = request.state.given
        fields = frozenset(read_string_list_field(given, "select"))
        found = self._list_matching_assistants(given)
        by, first_is_least = given.get("sort_by", "created_at"), given.get("sort_order") == "asc"
        found.sort(
            key=lambda one: str(self.assistant_json(one)[by] or "").lower(), reverse=not first_is_least
        )
        chosen, headers = paginate(given, found)
        return json_response(
            [select_fields(self.assistant_json(one), fields) for one in chosen], headers=headers
        )

    async def count_assistants(self, request: Request) -> Response:
        return json_response(len(self._list_matching_assistants(await read_json_body(request))))

    async def create_assistant(self, request: Request) -> Response:
        given = await read_json_body(request)
        graph = str(given.get("graph_id"))
        if graph not in (graphs := self._visible_graph_summaries()):
            raise NotFoundError(f"Graph {graph!r} not found. Expected one of {', '.join(sorted(graphs))}.")
        name = parse_uuid(given.get("assistant_id") or uuid4(), "assistant")
        there = next((one for one in self.list_visible_assistants() if one.id == name), None)
        if there is not None:
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Assistant {name} already exists")
            return json_response(self.assistant_json(there))
        kept = {**{key: given.get(key) for key in _EDITABLE_FIELDS}, **derive_config_and_context(given)} | {
            "version": 1,
            "name": given.get("name") or "Untitled",
            **ownership_fields(),
        }
        kept["versions"] = [{**kept, "at": time.time()}]
        return json_response(self.assistant_json(api_rows.insert_api_row(self.home, "assistant", name, kept)))

    def _require_editable_assistant(self, request: Request) -> api_rows.ApiRow:
        found = self._assistant_from_path(request)
        if api_rows.find_api_row(self.home, "assistant", found.id) is None:
            name = found.body["name"]
            raise RefusedError(
                409, f"The assistant of workflow {name!r} can't be changed: make another of its graph."
            )
        return found

    async def update_assistant(self, request: Request) -> Response:
        found, given = self._require_editable_assistant(request), await read_json_body(request)
        metadata = {**read_object_field(found.body, "metadata"), **read_object_field(given, "metadata")}
        given |= derive_config_and_context(given)
        changed = {key: given[key] for key in _EDITABLE_FIELDS if given.get(key) is not None} | {
            "metadata": metadata
        }
        version = max(one["version"] for one in found.body["versions"]) + 1
        kept = {**{key: found.body.get(key) for key in _EDITABLE_FIELDS}, **changed, "version": version}
        versions = [{**kept, "at": time.time()}, *found.body["versions"]]
        api_rows.update_api_row_if_exists(
            self.home, "assistant", found.id, {**kept, "versions": versions, "updated": time.time()}
        )
        return json_response(self.assistant_json(self.resolve_assistant(found.id)))

    async def delete_assistant(self, request: Request) -> Response:
        name = self._require_editable_assistant(request).id
        if request.query_params.get("delete_threads") == "true":
            await self._threads.remove_matching_threads({"assistant_id": name})
        api_rows.remove_api_row(self.home, "assistant", name)
        return Response(status_code=204)

    async def list_versions(self, request: Request) -> Response:
        found, given = self._assistant_from_path(request), await read_json_body(request)
        shown = [
            {
                **self.assistant_json(api_rows.ApiRow(found.id, "", "", one, found.at)),
                "created_at": iso_time(one.get("at", found.at)),
            }
            for one in found.body["versions"]
            if matches_filter(read_object_field(given, "metadata"), one.get("metadata"))
        ]
        return json_response(
            [{k: v for k, v in one.items() if k != "updated_at"} for one in paginate(given, shown)[0]]
        )

    async def set_latest_version(self, request: Request) -> Response:
        found, given = self._require_editable_assistant(request), await read_json_body(request)
        wanted = next((one for one in found.body["versions"] if one["version"] == given.get("version")), None)
        if wanted is None:
            raise NotFoundError(f"Assistant {found.id} has no version {given.get('version')!r}.")
        api_rows.update_api_row_if_exists(
            self.home, "assistant", found.id, {**wanted, "updated": time.time()}
        )
        return json_response(self.assistant_json(self.resolve_assistant(found.id)))

    def _load_and_compile_workflow(self, assistant: api_rows.ApiRow) -> tuple[Pipeline, Any]:
        """The workflow of an assistant, and its graph; one that a function makes, as the assistant configures it."""
        config: dict[str, Any] = {"configurable": {}, **read_object_field(assistant.body, "config")}
        found = self.client.load_workflow(assistant.body["graph_id"]).with_langgraph_config(config)
        return found, found.compile()

    def get_schemas(self, request: Request) -> Response:
        one = self._assistant_from_path(request)
        workflow, graph = self._load_and_compile_workflow(one)
        found = _graph_json_schemas(graph)
        kinds = dialect_for_workflow(workflow).models_replacing_graph_schemas(workflow)
        found |= {name: _schema_or_none(kind.model_json_schema) for name, kind in kinds.items()}
        return json_response({"graph_id": one.body["graph_id"], **found})

    def get_graph(self, request: Request) -> Response:
        one, xray = self._assistant_from_path(request), request.query_params.get("xray", "")
        depth: Any = (
            int(xray) if xray.isdecimal() else {"true": True, "false": False, "": False}.get(xray.lower())
        )
        if depth is None or xray == "0":
            raise RefusedError(422, f"xray must be true, false or a depth from 1, not {xray!r}.")
        drawn = self._load_and_compile_workflow(one)[1].get_graph(xray=depth).to_json()
        for node in drawn["nodes"]:
            node["data"] = {"name": node["id"]} if "data" in node else None
        nodes = [{k: v for k, v in node.items() if v is not None} for node in drawn["nodes"]]
        return json_response({**drawn, "nodes": nodes})

    def get_subgraphs(self, request: Request) -> Response:
        one, namespace = self._assistant_from_path(request), request.path_params.get("namespace")
        deep = request.query_params.get("recurse", "").lower() == "true"
        found = self._load_and_compile_workflow(one)[1].get_subgraphs(namespace=namespace, recurse=deep)
        return json_response({name: _graph_json_schemas(graph) for name, graph in found})


def _graph_json_schemas(graph: Any) -> dict[str, Any]:
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


def _schema_or_none(build_schema: Any) -> Any:
    """Return a schema; None if the types have none."""
    try:
        return build_schema()
    except (PydanticUserError, InterlockError, TypeError, AttributeError):
        return None


def derive_config_and_context(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration and a context, each made of the other where only that is given. Raises `RefusedError`."""
    config, context = read_object_field(body, "config"), read_object_field(body, "context")
    known = read_object_field(config, "configurable")
    if context and known:
        raise RefusedError(400, "Cannot specify both configurable and context. Prefer setting context alone.")
    if context:
        return {"config": {**config, "configurable": context}, "context": context}
    return {"context": known} if known else {}
