"""show: one run: status, path through the graph, calls, tokens, what waits; its state at a step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.parsing import Args, Parser, declare_arguments, flag_argument, number_parser
from interlock.cli.render.output import (
    Paint,
    abbreviate_home,
    format_age,
    format_compact_number,
    format_count,
    format_dollars,
    format_duration,
    format_node_path,
    print_json,
    print_table,
    result_paint,
    shorten,
    to_one_line,
)
from interlock.cli.render.pending_requests import pending_request_lines
from interlock.cli.render.workflow_results import result_lines
from interlock.engine.client import Agent, Call, Client, RunRow, count_consecutive_root_nodes
from interlock.engine.client.decision_lines import (
    DecisionRow,
    call_status_text,
    choice_verb_and_suffix,
    format_argument_change,
    format_call_decisions,
    format_decision,
    format_local_time,
)
from interlock.engine.client.requests import summarize_arguments
from interlock.state.errors import UserError
from interlock.state.names import is_hidden_node
from interlock.state.text import to_visible_json

_CALLS = 30
_MARKS = {"success": "✓", "cancelled": "–"}


def newest_call_lines(client: Client, run: str, paint: Paint) -> Iterator[str]:
    """The newest calls with their results, each followed by who decided on it."""
    made = client.calls(run)
    if len(made) > _CALLS:
        yield paint(f"        … {len(made) - _CALLS} earlier calls: interlock show {run} --calls", "dim")
    for number_, call in enumerate(made[-_CALLS:]):
        unknown = call.state == "intent" and not call.under_way
        mark = "✗" if call.failed else _MARKS.get(call.status or "", "?" if unknown else "·")
        took = f" · {format_duration(call.ms / 1000)}" if call.ms else ""
        what = call.summary if call.state == "done" else call_status_text(call)
        about = f"{call.tool} {shorten(summarize_arguments(call.args), 60)} · {to_one_line(what, 80)}{took}"
        yield f"{'calls' if number_ == 0 else '':<8}{mark} {about}"
        if who := format_call_decisions(call):
            yield paint(f"          {who}", "dim")


def all_call_detail_lines(client: Client, run: str, paint: Paint) -> Iterator[str]:
    made = client.calls(run)
    if not made:
        waits = f" yet. To see what waits: interlock approvals {run}" if client.waiting_requests(run) else "."
        yield f"Run {run} has made no calls{waits}"
    for number_, call in enumerate(made, 1):
        yield from call_detail_lines(number_, call, paint)


def call_detail_lines(number: int, call: Call, paint: Paint) -> Iterator[str]:
    yield f"{number:>3}  {paint(call.tool, 'bold')} · {call_status_text(call)} · {to_one_line(call.summary, 100)}"
    yield f"     arguments {to_visible_json(call.args)}"
    for decision in call.decided:
        yield from _decision_lines(decision, paint)
    if call.started:
        yield f"     {format_local_time(call.started)} started"
    if call.ended:
        took = f" after {format_duration(call.ms / 1000)}" if call.ms is not None else ""
        yield f"     {format_local_time(call.ended)} ended{took}"


def _decision_lines(decision: DecisionRow, paint: Paint) -> Iterator[str]:
    mode = f" in mode {decision['mode']}" if decision.get("mode") else ""
    verdict = "no objection" if decision["by"] == "hook" else decision["decision"]
    nothing = f"{decision.get('who', decision['by'])}: {verdict}"
    said = format_decision(decision) or format_argument_change(decision) or nothing
    yield f"     {format_local_time(decision['at'])} {paint(said, 'bold')}{mode}"
    if decision["by"] != "hook" and decision.get("reason"):
        yield f"              {to_one_line(decision['reason'])}"
    for part in decision.get("parts", ()):
        yield f"              {part['decision']:<5} {to_one_line(part['text'], 80)} · {to_one_line(part['reason'])}"
    for hook in decision.get("hooks", ()):
        warned = hook.get("warning") or hook.get("reason") or ""
        why = f" · {to_one_line(warned)}" if warned else ""
        took = format_duration(hook.get("duration_ms", 0) / 1000)
        name = f"{decision['event']} hook {hook['name']} ({hook['source']})"
        yield f"              {name}: {hook['decision']} in {took}{why}"
    if decision.get("becomes"):
        yield f"              - {to_visible_json(decision['before'])}"
        yield f"              + {to_visible_json(decision['after'])}"


if TYPE_CHECKING:
    from interlock.state.messages import Message

_ENDS = {"goal": "green", "": "yellow"}
_LABELS = {"use_model": "model", "note_loop": "loop"}
"""Nodes whose reasons are shown unasked; the others are in --json."""


@declare_arguments(
    Parser.add_run_argument,
    flag_argument("--calls", "list each call: who decided, when, who changed arguments"),
    flag_argument("--call ID", "show one call, by number or id, with its full output"),
    flag_argument("--at STEP", "show state and conversation after this step", type=number_parser(int, -1)),
    flag_argument("--dropped", "show what compression and masking removed"),
    flag_argument("--verify", "check that every record is present and unchanged"),
    Parser.add_json_flag,
)
def show(args: Args) -> int | None:
    client = Client.for_this_user()
    run = client.find_run(args.run)
    if args.verify:
        return _check_and_report_integrity(client, run.run, args.json)
    if args.dropped:
        _show_dropped_messages(client, run.run, args.json)
    elif args.at is not None:
        _show_state(client, run.run, args.at, args.json)
    elif args.call:
        _show_call(client, run.run, args.call, args.json)
    elif args.json:
        print_json(_run_fields(client, run))
    else:
        paint = result_paint()
        paint.print_lines(
            all_call_detail_lines(client, run.run, paint)
            if args.calls
            else run_summary_lines(client, run, paint)
        )


def _show_call(client: Client, run: str, name: str, as_json: bool) -> None:
    made = client.calls(run)
    call = client.find_call(run, name)
    result = client.results_by_call_id(run).get(call.id, {})
    if as_json:
        return print_json({**call._asdict(), "result": result})
    paint = result_paint()
    paint.print_lines(call_detail_lines(made.index(call) + 1, call, paint))
    for line in str(result.get("content", "")).splitlines():
        paint.print_line(line, keep_newlines=True)


def _run_fields(client: Client, run: RunRow) -> dict[str, Any]:
    taken = client.steps(run.run)
    return {
        **run._asdict(),
        "path": count_consecutive_root_nodes(taken),
        "stopped_in": client.interrupted_node_paths(run),
        "steps": [s._asdict() for s in taken],
        "reasons": [r._asdict() for r in client.route_reasons(run.run)],
        "calls": [c._asdict() for c in client.calls(run.run)],
        "effects": [e._asdict() for e in client.effects(run.run)],
        "models": client.model_usage(run.run),
        "agents": [a._asdict() for a in client.agents(run.run)],
        "undone": [one._asdict() for one in client.undo_notes(run.run)],
        "answered": list(client.answered_requests(run.run)),
        "output": {} if run.workflow in _TALKING else client.load_output(run.run),
        "pending_approvals": [r.fields for r in client.waiting_requests(run.run)],
        "no_worker": client.missing_worker_line([run]),
        "not_delivered": _undelivered_files(client, run),
    }


def run_summary_lines(client: Client, run: RunRow, paint: Paint) -> Iterator[str]:
    status = run.status + (f" ({run.end_reason})" if run.end_reason else "")
    yield f"{paint(run.run, 'bold')}  {run.workflow}  {paint(status, 'bold')}"
    yield f"  {to_one_line(run.title)}"
    where = abbreviate_home(run.workspace)
    times = f"started {format_age(run.created)} · changed {format_age(run.updated)}"
    yield f"  in {where} · {times} · step {run.step}"
    if run.owner:
        yield f"  driven by {run.owner}"
    if waits := client.missing_worker_line([run]):
        yield paint(f"  {waits}", "red")
    if run.error:
        yield paint(f"  {to_one_line(str(run.error.get('message', '')))}", "red")
    for part in (
        _output_lines(client, run, paint),
        _label_first_line("left", _undelivered_file_lines(client, run)),
        _node_path_lines(client, run, paint),
        _model_and_loop_reason_lines(client, run.run),
        _label_first_line("agents", _agent_lines(client, run.run, paint)),
        _plan_lines(client, run, paint),
        _label_first_line("tasks", _related_task_lines(client, run)),
        newest_call_lines(client, run.run, paint),
        _label_first_line(
            "undone", (f"{format_local_time(one.at)} {one.text}" for one in client.undo_notes(run.run))
        ),
        _label_first_line("effects", _effect_lines(client, run.run, paint)),
        _label_first_line("tokens", _token_lines(client, run.run)),
        _label_first_line("decided", _answered_request_lines(client, run.run)),
        _pending_request_or_resume_lines(client, run, paint),
    ):
        lines = list(part)
        yield from ["", *lines] if lines else ()


_TALKING = ("main", "plan", "task")
"""Their output is the conversation."""


def _output_lines(client: Client, run: RunRow, paint: Paint) -> Iterator[str]:
    if run.workflow not in _TALKING and (output := client.load_output(run.run)):
        yield from _label_first_line("output", result_lines(run.workflow, output, paint))


def _undelivered_files(client: Client, run: RunRow) -> list[str]:
    if not run.queue:
        return []
    from interlock.engine.client.fleet import read_delivery  # which fast commands needn't import

    return [*read_delivery(client.home, run.run).left_behind]


def _undelivered_file_lines(client: Client, run: RunRow) -> Iterator[str]:
    if not run.queue or run.status != "done":
        return
    from interlock.engine.client.fleet import read_delivery, undelivered_files_line

    if left := undelivered_files_line(read_delivery(client.home, run.run)):
        yield f"not delivered: {left}"


def _label_first_line(label: str, lines: Iterable[str]) -> Iterator[str]:
    for number_, line in enumerate(lines):
        yield f"{'' if number_ else label:<8}{line}"


def _node_path_lines(client: Client, run: RunRow, paint: Paint) -> Iterator[str]:
    taken = [s for s in client.steps(run.run) if not is_hidden_node(s.node)]
    if root := count_consecutive_root_nodes(taken):
        yield f"path    {format_node_path(root)}"
    if stopped := client.interrupted_node_paths(run):
        yield f"        stopped in {', '.join(stopped)}"
    times = Counter[str]()
    for step in taken:
        if step.workflow:
            times[f"{step.workflow} › {step.node}"] += step.ms / 1000  # pyright: ignore[reportArgumentType]
    slow = ", ".join(
        f"{name} {format_duration(seconds)}" for name, seconds in times.most_common(3) if seconds >= 0.1
    )
    if slow:
        yield paint(f"        longest: {slow}", "dim")


def _model_and_loop_reason_lines(client: Client, run: str) -> Iterator[str]:
    """One line per reason; the label only where it changes."""
    shown = ""
    for found in client.route_reasons(run):
        if label := _LABELS.get(found.node, ""):
            yield f"{label if label != shown else '':<8}{to_one_line(found.reason, 400)} (step {found.step})"
            shown = label


def _agent_lines(client: Client, run: str, paint: Paint) -> Iterator[str]:
    """One line per sub-agent: its state or why it ended, turns, tokens, time."""
    found = client.agents(run)
    for agent, branches in zip(found, _tree_prefixes(found), strict=True):
        name = agent.path.rpartition("/")[2]
        facts = [format_count(agent.turns, "turn"), f"{format_compact_number(agent.tokens)} tokens"]
        if agent.seconds is not None:
            facts.append(format_duration(agent.seconds))
        state = paint(agent.reason or agent.state, _ENDS.get(agent.reason, "red"))
        yield f"{branches} {name} · {state} · {' · '.join(facts)}"


def _tree_prefixes(agents: Sequence[Agent]) -> list[str]:
    """The tree lines that lead to each agent from its parents."""
    marks: list[str] = []
    going_on = set[int]()
    """Levels on which another agent with the same parent follows."""
    for agent in reversed(agents):
        lines = ["│ " if level in going_on else "  " for level in range(agent.depth)]
        marks.append("".join([*lines, "├─" if agent.depth in going_on else "└─"]))
        going_on = {level for level in going_on if level < agent.depth} | {agent.depth}
    return marks[::-1]


def _plan_lines(client: Client, run: RunRow, paint: Paint) -> Iterator[str]:
    """The plan's file, its phase while in progress, its steps once approved."""
    carries_out = run.parent and run.workflow == "main"
    if run.workflow != "plan" and not carries_out and not (client.home / "plans" / run.run).is_dir():
        return
    state = _load_state_with_plan_phase(client, run.run)
    if not state.get("plan_file") and not state.get("plan_phase"):
        return
    following = state.get("main_run")
    shown = (_load_state_with_plan_phase(client, following) if following else {}) or state
    todo: Sequence[Mapping[str, Any]] = shown.get("plan_steps") or ()
    done = f"{sum(step['done'] for step in todo)} of {len(todo)} steps done"
    stands = done if state.get("approved_plan") else state.get("plan_phase", "")
    yield f"plan    {state.get('plan_file') or 'not written yet'} · {paint(stands, 'bold')}"
    for step in todo:
        yield f"        {paint('✓', 'green') if step['done'] else '·'} {to_one_line(step['text'], 100)}"
    if following:
        yield f"        carried out by run {following}: interlock show {following}"


def _related_task_lines(client: Client, run: RunRow) -> Iterator[str]:
    """The task that requested this one, and those it requested."""
    if run.workflow != "task":
        return
    if run.parent:
        how = "requested by" if run.subtask else "forked from"
        yield f"{how} run {run.parent}: interlock show {run.parent}"
    below = (r for r in client.runs(parent=run.run) if r.subtask)
    for task in sorted(below, key=lambda r: r.created):
        yield f"requested {task.run} · {task.status} · {to_one_line(task.title, 80)}"


def _load_state_with_plan_phase(client: Client, run: str) -> dict[str, Any]:
    """The run's state; empty for a run that was killed before its first checkpoint."""
    try:
        state = client.masked_state(run)
        # A batch updates the phase when its review begins, the run only when the batch is over.
        return {
            **state,
            **{k: v for k, v in client.masked_tool_batch_state(run).items() if k == "plan_phase"},
        }
    except UserError:
        return {}


def _effect_lines(client: Client, run: str, paint: Paint) -> Iterator[str]:
    for effect in client.effects(run):
        state = paint(effect.state, {"done": "green", "failed": "red"}.get(effect.state, "yellow"))
        took = f" in {format_duration(effect.ended - effect.started)}" if effect.ended else ""
        again = f", begun {effect.attempt} times" if effect.attempt > 1 else ""
        yield f"{format_local_time(effect.started)} {effect.name} in {effect.node} · {state}{took}{again}"


def _token_lines(client: Client, run: str) -> Iterator[str]:
    for model, used in client.model_usage(run).items():
        counts = f"{format_compact_number(used['input_tokens'])} in, {format_compact_number(used['output_tokens'])} out"
        cached = f", {format_compact_number(used['cached'])} cached" if used["cached"] else ""
        cost = "" if used["usd"] is None else f" · {format_dollars(used['usd'])}"
        yield f"{model}: {counts}{cached} · {format_count(used['requests'], 'request')}{cost}"


def _answered_request_lines(client: Client, run: str) -> Iterator[str]:
    for item in client.answered_requests(run):
        words = item["text"] or item["feedback"] or ""
        who = f" by {item['by']}" if item["by"] else ""
        word = "".join(choice_verb_and_suffix(item["kind"], item["choice"]))
        line = f"{item['id']} {item['tool_name']}: {word}{who}, {format_age(item['at'])}"
        yield line + (f" “{to_one_line(words, 60)}”" if words else "")


def _pending_request_or_resume_lines(client: Client, run: RunRow, paint: Paint) -> Iterator[str]:
    if run.status == "waiting":
        yield from pending_request_lines(
            run.run, run.title, [r.fields for r in client.waiting_requests(run.run)], paint
        )
    elif run.status == "interrupted" or (run.status == "cancelled" and not run.error):
        yield f"Resume it: {paint(f'interlock resume {run.run}', 'cyan')}"


def _show_state(client: Client, run: str, step: int, as_json: bool) -> None:
    state = client.masked_state(run, step)
    messages = client.read_messages(run, state)
    if as_json:
        return print_json({"run": run, "step": step, "state": state, "messages": _message_fields(messages)})
    print_table([(key, to_one_line(str(value), 100)) for key, value in state.items()])
    result_paint().print_line()
    for message in messages:
        _show_message(message, 2000)


def _show_dropped_messages(client: Client, run: str, as_json: bool) -> None:
    parts = client.dropped_messages(run)
    if as_json:
        return print_json({"run": run, "dropped": [_message_fields(part) for part in parts]})
    if not parts:
        result_paint().print_line(f"Run {run}: nothing was removed from the conversation.")
    for number_, part in enumerate(parts, 1):
        result_paint().print_line(
            f"— removed, {number_} of {len(parts)}: {format_count(len(part), 'message')} —"
        )
        for message in part:
            _show_message(message, None)


def _message_fields(messages: "Iterable[Message]") -> list[dict[str, Any]]:
    return [m.model_dump(mode="json", exclude_defaults=True) for m in messages]


def _show_message(message: "Message", limit: int | None) -> None:
    text = message.text.strip()
    cut_off = f" … ({len(text)} characters)" if limit and len(text) > limit else ""
    paint = result_paint()
    paint.print_line(f"{message.role}: {text[:limit]}{cut_off}", keep_newlines=True)
    for call in message.tool_calls:
        paint.print_line(f"  calls {call.name} {to_one_line(str(call.args), 100)}")


def _check_and_report_integrity(client: Client, run: str, as_json: bool) -> int:
    problems = client.list_damaged_records(run)
    if as_json:
        print_json({"run": run, "problems": problems})
        return 1 if problems else 0
    result_paint().print_lines(problems)
    if not problems:
        result_paint().print_line(f"Run {run}: every record is present and unchanged.")
    return 1 if problems else 0
