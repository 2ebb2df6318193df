-- The store's tables in PostgreSQL, and what stores of earlier versions lack of them. Columns are explained in
-- `schema.sql`, which has the same tables for SQLite: a test compares both. Texts are compared as bytes, as there.
create table if not exists store_version (version bigint primary key, at double precision);
do $$ begin if exists (select from pg_tables where tablename = 'steps' and schemaname = current_schema) then
    alter table steps rename to steps_before;
end if; end $$;
create table if not exists runs (
    run text collate "C" primary key,
    workflow text collate "C" not null,
    parent text collate "C",
    subtask_of text collate "C",
    workspace text collate "C" not null,
    title text collate "C" not null,
    created double precision not null,
    updated double precision not null,
    status text collate "C" not null,
    outcome text collate "C" not null default '',
    step bigint not null default 0,
    options text collate "C" not null,
    input text collate "C" not null,
    error text collate "C",
    queue text collate "C"
);
create index if not exists runs_parent on runs (parent) where parent is not null;
create table if not exists checkpoints (
    thread_id text collate "C" not null,
    checkpoint_ns text collate "C" not null default '',
    checkpoint_id text collate "C" not null,
    parent_checkpoint_id text collate "C",
    type text collate "C",
    checkpoint bytea,
    metadata bytea,
    primary key (thread_id, checkpoint_ns, checkpoint_id)
);
create table if not exists writes (
    thread_id text collate "C" not null,
    checkpoint_ns text collate "C" not null default '',
    checkpoint_id text collate "C" not null,
    task_id text collate "C" not null,
    idx bigint not null,
    task_path text collate "C" not null default '',
    channel text collate "C" not null,
    type text collate "C",
    value bytea,
    primary key (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);
create table if not exists chain (
    id text collate "C" primary key,
    parent text collate "C" not null,
    run text collate "C" not null,
    body bytea not null,
    file text collate "C"
);
create index if not exists chain_roots on chain (run) where parent = '';
create table if not exists named_files (
    name text collate "C" not null,
    run text collate "C" not null,
    primary key (name, run)
);
create table if not exists model_calls (
    run text collate "C" not null,
    agent text collate "C" not null,
    role text collate "C" not null,
    ordinal bigint not null,
    task text collate "C" not null,
    request_hash text collate "C" not null,
    record text collate "C" not null,
    model text collate "C" not null,
    finish_reason text collate "C",
    problem text collate "C",
    input_tokens bigint not null,
    output_tokens bigint not null,
    cached_tokens bigint not null,
    written_tokens bigint not null default 0,
    thought_tokens bigint not null,
    usd double precision,
    duration_ms bigint not null,
    at double precision not null,
    primary key (run, agent, role, ordinal)
);
create table if not exists reservations (
    run text collate "C" not null,
    task text collate "C" not null,
    epoch bigint not null,
    agent text collate "C" not null,
    model text collate "C" not null,
    tokens bigint not null,
    under_way bigint not null,
    at double precision not null,
    primary key (run, task, epoch)
);
create table if not exists journal (
    run text collate "C" not null,
    message text collate "C" not null,
    idx bigint not null,
    attempt bigint not null,
    tool text collate "C" not null,
    args_hash text collate "C" not null,
    args text collate "C",
    state text collate "C" not null,
    planned text collate "C",
    result text collate "C",
    result_file text collate "C",
    record text collate "C",
    epoch bigint not null,
    intent_at double precision,
    done_at double precision,
    primary key (run, message, idx, attempt)
);
create table if not exists effects (
    run text collate "C" not null,
    task text collate "C" not null,
    key text collate "C" not null,
    place text collate "C" not null,
    attempt bigint not null,
    state text collate "C" not null,
    type text collate "C",
    value bytea,
    epoch bigint not null,
    intent_at double precision not null,
    done_at double precision,
    primary key (run, task, key)
);
create table if not exists node_updates (
    run text collate "C" not null,
    task text collate "C" not null,
    place text collate "C" not null,
    node text collate "C" not null,
    code text collate "C" not null,
    state text collate "C" not null,
    type text collate "C" not null,
    wrote bytea not null,
    raised text collate "C" not null,
    at double precision not null,
    primary key (run, task, node, state)
);
create table if not exists decisions (
    run text collate "C" not null,
    message text collate "C" not null,
    idx bigint not null,
    task text collate "C" not null,
    attempt bigint not null,
    body text collate "C" not null,
    at double precision not null,
    primary key (run, message, idx, task)
);
create table if not exists hook_calls (
    run text collate "C" not null,
    event text collate "C" not null,
    key text collate "C" not null,
    hook text collate "C" not null,
    place bigint not null,
    attempt bigint not null,
    subject text collate "C" not null,
    name text collate "C" not null,
    source text collate "C" not null,
    command text collate "C" not null,
    idempotent bigint not null,
    state text collate "C" not null,
    reply text collate "C",
    reply_file text collate "C",
    epoch bigint not null,
    intent_at double precision not null,
    done_at double precision,
    primary key (run, event, key, hook)
);
create table if not exists server_replies (
    run text collate "C" not null,
    asked text collate "C" not null,
    reply text collate "C" not null,
    at double precision not null,
    primary key (run, asked)
);
create table if not exists approvals (
    id text collate "C" primary key,
    run text collate "C" not null,
    key text collate "C" not null,
    request text collate "C" not null,
    asked_at double precision not null,
    interrupt text collate "C",
    answer text collate "C",
    answered_at double precision,
    answered_by text collate "C",
    rule text collate "C",
    superseded bigint not null default 0,
    number bigint,
    seq bigint not null default 0,
    unique (run, key)
);
create table if not exists step_rows (
    run text collate "C" not null,
    seq bigint not null,
    task text collate "C" not null,
    root_step bigint not null,
    superstep text collate "C" not null,
    started double precision not null,
    nodes text collate "C" not null,

    primary key (run, seq)
);
create table if not exists step_kinds (
    kind bigint primary key,
    namespace text collate "C" not null,
    mark text collate "C" not null,
    workflow text collate "C" not null,
    node text collate "C" not null,
    keys text collate "C" not null,
    route text collate "C" not null
);
create or replace view steps as
    select r.run, r.seq + n.key as seq,
           coalesce((n.value ->> 3), replace(k.namespace, '@', r.task)) as namespace,
           r.task || k.mark as task, k.workflow, k.node,
           r.started + (n.value ->> 1)::bigint / 1e6::double precision as started,
           (n.value ->> 2)::bigint / 1e3::double precision as ms,
           k.keys, nullif(k.route, '') as route, (n.value ->> 4) as reason,
           r.root_step, r.superstep || k.mark as superstep, r.seq as first
    from step_rows r, lateral (
        select value, place - 1 as key from json_array_elements(r.nodes::json) with ordinality n (value, place)
    ) n left join step_kinds k on k.kind = (n.value ->> 0)::bigint;
create table if not exists snapshots (
    run text collate "C" not null,
    message text collate "C" not null,
    idx bigint not null,
    attempt bigint not null,
    seq bigint not null,
    root_step bigint not null,
    repository text collate "C" not null,
    before text collate "C" not null,
    after text collate "C",
    inherited bigint not null default 0,
    at double precision not null,
    primary key (run, message, idx, attempt)
);
create table if not exists undone (
    run text collate "C" not null,
    seq bigint not null,
    at double precision not null,
    text text collate "C" not null,
    record text collate "C",
    primary key (run, seq)
);
create table if not exists seen_files (
    run text collate "C" not null,
    agent text collate "C" not null,
    path text collate "C" not null,
    seq bigint not null,
    record text collate "C" not null,
    digest text collate "C" not null,
    how text collate "C" not null,
    body bytea,
    at double precision not null,
    primary key (run, agent, path, seq)
);
create table if not exists traces (
    run text collate "C" primary key,
    trace text collate "C" not null,
    parent text collate "C" not null,
    root text collate "C" not null,
    until double precision not null
);
create table if not exists lease (
    run text collate "C" primary key,
    host text collate "C" not null,
    boot text collate "C" not null,
    pid bigint not null,
    started text collate "C" not null,
    epoch bigint not null,
    beat bigint not null,
    held bigint not null,
    stop text collate "C"
);
create table if not exists sessions (
    session text collate "C" primary key,
    run text collate "C" not null,
    workspace text collate "C" not null,
    at double precision not null,
    chosen text collate "C" not null default '{}'
);
create table if not exists served (
    kind text collate "C" not null,
    id text collate "C" not null,
    thread text collate "C" not null,
    run text collate "C" not null,
    body text collate "C" not null,
    at double precision not null,
    primary key (kind, id)
);
create index if not exists served_thread on served (thread);
create index if not exists served_run on served (run);
insert into named_files (name, run) select '', '' where not exists (select 1 from runs) on conflict do nothing;
create table if not exists audit (
    seq bigint primary key,
    at double precision not null,
    kind text collate "C" not null,
    run text collate "C" not null,
    tbl text collate "C" not null,
    key text collate "C" not null,
    body text collate "C",
    hash text collate "C" not null,
    mac text collate "C" not null
);
-- Columns that earlier versions lack.
alter table model_calls add column if not exists written_tokens bigint not null default 0;
alter table model_calls add column if not exists usd double precision;
alter table sessions add column if not exists chosen text collate "C" not null default '{}';
alter table lease add column if not exists stop text collate "C";
-- Tables that only a store on a server has.
-- What is too long for a row, and snapshots (`blobs.py`).
create table if not exists blobs (
    name text collate "C" not null,  -- outputs/NAME, plans/RUN/NAME, snapshots/COMMIT
    part bigint not null,
    body bytea not null,
    owner text collate "C" not null,  -- a plan's run, a snapshot's repository; '' for outputs
    base text collate "C" not null,  -- the snapshot that this one continues; '' for none
    at double precision not null,
    primary key (name, part)
);
-- What users, workflows and models may use over all workers, and what they used (`limits.py`).
create table if not exists limits (
    kind text collate "C" not null,  -- user | workflow | model
    name text collate "C" not null,  -- or *
    runs bigint,  -- driven at once
    requests bigint,  -- to models, a minute
    tokens bigint,  -- a minute
    usd_per_day double precision,
    usd_per_month double precision,
    primary key (kind, name)
);
create table if not exists limit_use (
    kind text collate "C" not null,
    name text collate "C" not null,
    period text collate "C" not null,  -- day | month
    since bigint not null,  -- unix time at which the period began
    requests bigint not null,
    tokens bigint not null,
    usd double precision not null,
    primary key (kind, name, period)
);
create table if not exists limit_seconds (
    kind text collate "C" not null,
    name text collate "C" not null,
    since bigint not null,  -- unix time at which the second began
    requests bigint not null,
    tokens bigint not null,
    primary key (kind, name, since)
);
-- Runs that workers start at set times (`schedules.py`).
create table if not exists schedules (
    name text collate "C" primary key,
    cron text collate "C" not null,
    zone text collate "C" not null,  -- time zone that the cron line counts in
    workflow text collate "C" not null,
    title text collate "C" not null,
    workspace text collate "C" not null,
    queue text collate "C" not null,
    options text collate "C" not null,  -- JSON: what its runs are started with
    input text collate "C" not null,  -- JSON
    run text collate "C" not null default '',  -- that was started last
    said text collate "C" not null default ''  -- why none was started the last time
);
-- `steps` was a table.
do $$ begin if exists (select from pg_tables where tablename = 'steps_before' and schemaname = current_schema) then
    insert into step_kinds select -row_number() over (), '', '', workflow, node, keys, route
        from (select distinct workflow, node, keys, coalesce(route, '') as route from steps_before) as kinds;
    insert into step_rows (run, seq, task, root_step, superstep, started, nodes)
        select s.run, s.seq, s.task, s.root_step, s.superstep, s.started, cast(json_build_array(json_build_array(
            k.kind, 0, cast(s.ms * 1000 as bigint), s.namespace, s.reason)) as varchar)
        from steps_before s join step_kinds k on k.workflow = s.workflow and k.node = s.node and k.keys = s.keys
            and k.route = coalesce(s.route, '');
    drop table steps_before;
end if; end $$;
-- What a server's store is searched by beside its keys: it holds the runs of many people.
drop index if exists runs_open;
drop index if exists model_calls_task;
create index if not exists runs_updated on runs (updated);
create index if not exists runs_created on runs (created);
create index if not exists runs_status on runs (status, updated);
create index if not exists runs_workspace on runs (workspace, updated);
create index if not exists runs_loose on runs (run) where queue is not null and status = 'open';
create index if not exists chain_run on chain (run);
create index if not exists chain_parent on chain (parent);
create index if not exists named_files_run on named_files (run);
create index if not exists lease_held on lease (run) where held = 1;
create index if not exists approvals_open on approvals (asked_at, run)
    where answer is null and superseded = 0 and interrupt is not null;
create index if not exists snapshots_repository on snapshots (repository);
create index if not exists sessions_run on sessions (run);
create index if not exists model_calls_at on model_calls (at);
