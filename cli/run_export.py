"""run_export: a run as a page, a text or JSON, and its graph as a diagram."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from interlock.cli.render.output import one_line, visible_json
from interlock.engine.client import Client, Options, RunRow
from interlock.engine.client.requests import request_headline
from interlock.state.errors import InterlockError

if TYPE_CHECKING:
    from interlock.engine.client.diagrams import RunPath
    from interlock.graphs.pipeline import Pipeline


def load_workflow(workflow: str, options: Options) -> "Pipeline":
    return Client(options).load_workflow(workflow, with_own_nodes=True)


def draw_graph(
    workflow: "Pipeline | str",
    shape: str,
    depth: int,
    run: RunRow | None,
    call: str | None = None,
    show: Sequence[str] | None = None,
) -> str | bytes:
    from interlock.engine.client.diagrams import GROUPS, render_diagram
    from interlock.state.charts import CHARTS

    if isinstance(workflow, str) and workflow in CHARTS:
        life = Client.for_this_user().read_lifecycle(run.run, workflow, call) if run else None
        return render_diagram(workflow, shape, depth, life=life)
    return render_diagram(workflow, shape, depth, _read_run_path(run) if run else None, show=show or GROUPS)


def _read_run_path(run: RunRow) -> "RunPath":
    return Client.for_this_user().read_graph_path(run.run, _open_request_lines(run.run))


def _open_request_lines(run: str) -> list[str]:
    """What a run waits for and since when, why each thing is asked, and how to decide."""
    requests = Client.for_this_user().waiting_requests(run)
    lines: list[str] = []
    for nth, request in enumerate(requests, 1):
        lines += [
            f"{nth}. {one_line(request_headline(request.fields), 60)}",
            *_wrap_reason(request.fields["reason"]),
        ]
    if not lines:
        return []
    asked = time.strftime("%a %H:%M", time.localtime(requests[0].asked_at))
    return [f"asked {asked}:", *lines, f"decide: interlock resume {run}"]


def _wrap_reason(text: str) -> list[str]:
    indent = "\u00a0" * 4
    return wrap(
        one_line(text, 200), 60, initial_indent=indent, subsequent_indent=indent, drop_whitespace=True
    )


def export_run(run: RunRow, shape: str) -> str:
    """A run's export as html, md or json."""
    record = Client.for_this_user().export_record(run.run)
    if shape == "json":
        return visible_json(record, 2) + "\n"
    from interlock.cli.render.export import html_page, markdown_report

    options = Options(home=Client.for_this_user().home, workspace=Path(run.workspace), env=dict(os.environ))
    try:
        workflow = load_workflow(run.workflow, options)
    except InterlockError:  # the folder is gone, or its settings are wrong now: our workflow of that name
        workflow = run.workflow
    drawn = draw_graph(workflow, "svg" if shape == "html" else "mermaid", 1, run)
    return html_page(record, drawn) if isinstance(drawn, bytes) else markdown_report(record, drawn)
