"""workflow_inputs: a workflow's own inputs as flags of `run`, and in its help."""

import argparse
from collections.abc import Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from interlock.cli.parsing import Parser, add_flag, number_type, one_of
from interlock.engine.client import PIPELINES
from interlock.state.run import WorkflowInput

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from interlock.graphs.pipeline import Pipeline

_TYPES = {str: "TEXT", int: "N", float: "NUMBER", bool: "BOOLEAN", list: "LIST", tuple: "LIST", set: "LIST"}


def add_own_flags(made: Parser, workflow: "Pipeline") -> list[str]:
    """Add a flag for each scalar input that isn't one already; returns their names."""
    taken = {n for a in made._actions for n in (a.dest, *a.option_strings)}  # pyright: ignore[reportPrivateUsage]
    group = made.add_argument_group(f"inputs of {workflow.name}")
    added: list[str] = []
    for name, field in workflow.input.model_fields.items():
        kind = _scalar_type(field.annotation)
        typed, about = "--" + name.replace("_", "-"), _input_help(field)
        if kind is None or name == workflow.prompt_field or taken & {name, typed, f"--no-{typed[2:]}"}:
            continue
        if kind is bool:
            group.add_argument(typed, action=argparse.BooleanOptionalAction, help=about)
        elif isinstance(kind, tuple):
            add_flag(group, f"{typed} {'|'.join(kind)}", about, type=one_of(kind))
        else:
            read = number_type(kind) if kind in (int, float) else kind
            add_flag(group, f"{typed} {_TYPES[kind]}", about, type=read)
        added.append(name)
    return added


def describe_workflow(made: Parser, workflow: "Pipeline", flags: Sequence[str]) -> None:
    """Turn the parser's help into this workflow's, with its own inputs first."""
    name, prompt, fields = workflow.name, workflow.prompt_field, workflow.input.model_fields
    summary = workflow.summary or PIPELINES.get(name, "")
    made.usage = f"interlock run {name}{' [PROMPT]' if prompt else ''} [FLAGS]".replace("%", "%%")
    made.description = f"{name}: {summary}"
    made.epilog = f"every input as JSON Schema: interlock schema {name}"
    for action in made._actions:  # pyright: ignore[reportPrivateUsage]
        if action.dest == "words" and prompt is not None:
            action.help = f"{prompt}: {_input_help(fields[prompt])}"
        elif action.dest in ("workflow", "words"):
            action.help = argparse.SUPPRESS
    groups = made._action_groups  # pyright: ignore[reportPrivateUsage]
    own, rest = groups.pop(), made.add_argument_group(f"inputs of {name} without a flag, for --input")
    for other in (f for f in fields if f not in {*flags, prompt, *WorkflowInput.model_fields}):
        shown = argparse.Action([], other, 0, metavar=f"{other} {_json_type_name(fields[other].annotation)}")
        shown.help = _input_help(fields[other])
        rest._group_actions.append(shown)  # pyright: ignore[reportPrivateUsage] - shown, not parsed
    groups[1:1] = [own, groups.pop()]


def _input_help(field: "FieldInfo") -> str:
    """What an input is, and its default unless the description says it."""
    text = " ".join((field.description or "").replace(" ★", "").split())
    default = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        text = f"{text} (required)"
    elif default not in (None, False, "", [], {}) and "default" not in text:
        text = f"{text} (default: {'true' if default is True else default})"
    return text.strip().replace("%", "%%")


def _scalar_type(annotation: Any) -> type | tuple[str, ...] | None:
    """str, int, float or bool for `T` or `T | None`, the values of a Literal of strings; None for anything else."""
    if annotation in (str, int, float, bool):
        return annotation
    values = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _scalar_type(values[0])
    if get_origin(annotation) is Literal:
        return values if all(isinstance(value, str) for value in values) else None
    kinds = {_scalar_type(a) for a in values if a is not type(None)}
    return kinds.pop() if _is_union(annotation) and len(kinds) == 1 else None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _json_type_name(annotation: Any) -> str:
    """The JSON type of an input, as help shows it."""
    if _is_union(annotation):
        return "|".join(
            dict.fromkeys(_json_type_name(a) for a in get_args(annotation) if a is not type(None))
        )
    return _TYPES.get(get_origin(annotation) or annotation, "OBJECT")
