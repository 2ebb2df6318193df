"""fleet_figures: a store of 100,000 runs and 10,000 open requests in PostgreSQL: lists, and what a run takes.

    .venv/bin/python -P benchmarks/fleet_figures.py [--runs N] [--parked N]

Makes one parked run by `interlock -p`, copies its rows, and times whole commands, beside `interlock --version`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from postgres_server import Server

INTERLOCK = [str(Path(sys.executable).with_name("interlock"))]
SCRIPT = [
    {"tool_calls": [{"name": "run_shell_command", "args": {"command": "make release"}}]},
    {"text": "Done."},
]
_COPIES = """
create temp table one as select * from runs;
insert into runs select 'r' || lpad(n::text, 7, '0'), workflow, parent, subtask_of, '/work/' || n % 500, title,
    created - n, updated - n, case when n <= {parked} then 'open' else 'done' end,
    case when n <= {parked} then '' else 'done' end, step, options, input, error, queue
    from one, generate_series(1, {runs}) n;
create temp table asked as select * from approvals;
insert into approvals select 'r' || lpad(n::text, 7, '0') || '-1.0', 'r' || lpad(n::text, 7, '0'), key, request,
    asked_at - n, interrupt, answer, answered_at, answered_by, rule, superseded, number, seq
    from asked, generate_series(1, {parked}) n;
create temp table calls as select * from model_calls limit 1;
insert into model_calls select 'r' || lpad(n::text, 7, '0'), agent, role, ordinal, task || n, request_hash, record,
    model, finish_reason, problem, input_tokens, output_tokens, cached_tokens, written_tokens, thought_tokens, usd,
    duration_ms, at - n from calls, generate_series(1, {runs}) n;
"""
_SIZES = """
select relname, n_live_tup, pg_total_relation_size(relid) from pg_stat_user_tables
where n_live_tup > 0 order by 3 desc
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--parked", type=int, default=10_000)
    args = parser.parse_args()
    import psycopg

    server = Server("-c fsync=off")
    try:
        with tempfile.TemporaryDirectory() as folder:
            env = {
                **os.environ,
                "HOME": folder,
                "INTERLOCK_STORE": server.start(),
                "INTERLOCK_HOME": f"{folder}/state",
            }
            script = Path(folder) / "script.json"
            script.write_text(json.dumps(SCRIPT))
            _run(env, folder, "fleet", "init")
            _run(env, folder, "-p", "release it", "-m", f"script:{script}")
            with psycopg.connect(env["INTERLOCK_STORE"], autocommit=True) as conn:
                conn.execute("analyze")
                rows = conn.execute("select sum(n_live_tup) from pg_stat_user_tables").fetchone()
                conn.execute(
                    "alter table runs disable trigger user; alter table approvals disable trigger user"
                )
                conn.execute(_COPIES.format(runs=args.runs, parked=args.parked).encode())
                conn.execute("vacuum analyze")
                print(f"rows of one parked run: {rows[0] if rows else 0}")
                for words in (
                    ("--version",),
                    ("runs",),
                    ("approvals",),
                    ("runs", "--status", "waiting"),
                    ("fleet",),
                ):
                    took = [_run(env, folder, *words) for _ in range(5)]
                    print(f"interlock {' '.join(words):24} {median(took) * 1000:6.0f} ms", flush=True)
                for name, number, size in conn.execute(_SIZES).fetchall()[:6]:
                    print(f"{name:24} {number:8} rows {size / 1e6:8.1f} MB")
    finally:
        server.stop()
    return 0


def _run(env: dict[str, str], folder: str, *words: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [*INTERLOCK, *words], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 75):
        sys.exit(f"interlock {' '.join(words)}: {done.stderr}")
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
