"""audit: shows, exports and checks the record of who decided what, and signs its newest entry."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from interlock.cli.parsing import (
    Args,
    Parser,
    choice_argument,
    choice_parser,
    declare_arguments,
    flag_argument,
    parse_since_time,
)
from interlock.cli.render.output import (
    format_count,
    print_json,
    print_table,
    redact_secrets,
    remark_paint,
    result_paint,
)
from interlock.engine.client import Client
from interlock.engine.client.audit import find_audit_problems, read_audit_records, sign_newest_record
from interlock.engine.client.decision_lines import format_local_time
from interlock.state.errors import UserError

_SHOWN = ("tool", "who", "door", "choice", "rule", "mode")


@declare_arguments(
    choice_argument("what", "verify", "log", "export", "head"),
    flag_argument("--since WHEN", "with log and export: a date, a date and time, or an age like 7d or 12h"),
    flag_argument("--run RUN", "with log and export: this run's records only"),
    flag_argument(
        "--format KIND", "with export: jsonl or csv", type=choice_parser(("jsonl", "csv")), default="jsonl"
    ),
    flag_argument("--to FILE", "with head: add it to a file", type=Path),
    flag_argument("--ref REF", "with head: write it as a git ref of this repository, like refs/audit/head"),
    flag_argument("--against PLACE", "with verify: a file or a git ref with heads"),
    Parser.add_json_flag,
)
def audit(args: Args) -> int | None:
    return {
        "verify": _verify_and_report_records,
        "log": _print_audit_log,
        "export": _print_records_as_jsonl_or_csv,
        "head": _write_signed_head,
    }[args.what](args)


def _verify_and_report_records(args: Args) -> int:
    number, found = find_audit_problems(
        Client.for_this_user().home, tuple(_read_saved_heads(args.against)) if args.against else ()
    )
    if args.json:
        print_json({"records": number, "problems": found})
    elif found:
        result_paint().print_lines(found)
        remark_paint().print_line(
            f"{format_count(len(found), 'problem')} in {format_count(number, 'record')}."
        )
    else:
        result_paint().print_line(
            f"{format_count(number, 'record')}: nothing was changed, removed, inserted or moved."
        )
    return 1 if found else 0


def _read_records(args: Args) -> Iterator[dict[str, Any]]:
    client = Client.for_this_user()
    run = _resolve_run_id_even_if_removed(client, args.run) if args.run else None
    for record in read_audit_records(client.home, parse_since_time(args.since), run):
        entry = record._asdict()
        entry["at"] = datetime.fromtimestamp(record.at).astimezone().isoformat(timespec="milliseconds")
        yield {**entry, "key": json.loads(record.key), "body": json.loads(record.body or "{}")}


def _resolve_run_id_even_if_removed(client: Client, name: str) -> str:
    """Its id; a run that was removed has records, too."""
    try:
        return client.find_run(name).run
    except UserError:
        if not any(read_audit_records(client.home, run=name)):
            raise
        return name


def _print_audit_log(args: Args) -> None:
    found = [*_read_records(args)]
    if args.json:
        return print_json(found)
    tools = {
        (*entry["key"][:3],): entry["body"].get("tool") for entry in found if entry["table"] == "journal"
    }
    rows: list[tuple[str, ...]] = []
    for entry in found:
        body: dict[str, Any] = entry["body"]
        who = body.get("who") or body.get("by") or ""
        about = [
            body.get("choice"),
            body.get("door"),
            body.get("rule") if entry["kind"] == "decision" else None,
        ]
        told = " · ".join(str(part) for part in about if part)
        tool = body.get("tool") or tools.get((*entry["key"][:3],)) or ""
        at = datetime.fromisoformat(entry["at"]).timestamp()
        rows.append((format_local_time(at), entry["run"], entry["kind"], tool, who, told))
    print_table(rows, ("at", "run", "what", "tool", "who", "how"))


def _print_records_as_jsonl_or_csv(args: Args) -> None:
    if args.format == "jsonl":
        for entry in _read_records(args):
            result_paint().print_line(redact_secrets(json.dumps(entry, ensure_ascii=False)))
        return result_paint().print_line(
            json.dumps({"head": sign_newest_record(Client.for_this_user().home)})
        )
    columns = ("seq", "at", "kind", "run", *_SHOWN, "table", "key", "body", "hash", "mac")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(columns)
    for entry in _read_records(args):
        texts = {name: json.dumps(entry[name], ensure_ascii=False) for name in ("key", "body")}
        row = {**entry["body"], **entry, **texts}
        table.writerow([redact_secrets(str("" if row.get(name) is None else row[name])) for name in columns])


def _write_signed_head(args: Args) -> None:
    line = json.dumps(sign_newest_record(Client.for_this_user().home))
    if args.to:
        try:
            with args.to.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise UserError(f"Can't write {str(args.to)!r}: {error.strerror}.") from error
    if args.ref:
        _run_git("update-ref", args.ref, _run_git("hash-object", "-w", "--stdin", stdin=line + "\n").strip())
    if not args.to and not args.ref:
        result_paint().print_line(line)


def _read_saved_heads(file_or_ref: str) -> Iterator[dict[str, Any]]:
    file = Path(file_or_ref)
    text = file.read_text(encoding="utf-8") if file.is_file() else _run_git("cat-file", "-p", file_or_ref)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError):
            raise UserError(
                f"{file_or_ref!r}, line {number}: no head. Made with: interlock audit head"
            ) from None


def _run_git(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(("git", *arguments), input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.splitlines() or ["failed"])[0]  # more follow where a file system ends
        raise UserError(f"git {arguments[0]}: {why}. Expected a file, or a git ref here.")
    return done.stdout
