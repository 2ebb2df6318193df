-- The store's tables, as SQLite makes them.
-- A key's columns come first, in its order: SQLite 3.40 takes a table without rowid for damaged otherwise. Only tables
-- of short rows are without rowid: in pages of 1 KB, rows of over 231 bytes would spill into pages of their own.
create table if not exists runs (
    run text primary key,
    workflow text not null,
    parent text,                      -- run that this one was forked from or handed over by
    subtask_of text,                  -- task that started it; a fork keeps it, but has another `parent`
    workspace text not null,
    title text not null,              -- first 200 characters of the prompt
    created real not null,            -- unix time
    updated real not null,
    status text not null,             -- open | waiting | done | failed | cancelled (running follows from the lease)
    outcome text not null default '', -- how it ended: a key of EXIT_CODES
    step integer not null default 0,  -- root checkpoint number
    options text not null,            -- JSON: what is needed to drive it again (model, approval mode, settings flags)
    input text not null,              -- JSON: the graph's first input, for a run that was killed before its first checkpoint
    error text,                       -- JSON {type, message}
    queue text                        -- whose workers drive it; null: whoever starts or resumes it
);
create index if not exists runs_parent on runs (parent) where parent is not null;
-- LangGraph's own. `writes` without rowid saves a copy of its long keys: most of its rows never reach the disk.
create table if not exists checkpoints (
    thread_id text not null,
    checkpoint_ns text not null default '',
    checkpoint_id text not null,
    parent_checkpoint_id text,
    type text,
    checkpoint blob,
    metadata blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id)
);
create table if not exists writes (
    thread_id text not null,
    checkpoint_ns text not null default '',
    checkpoint_id text not null,
    task_id text not null,
    idx integer not null,
    task_path text not null default '',
    channel text not null,
    type text,
    value blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
) without rowid;
create table if not exists chain (
    id text primary key,
    parent text not null,             -- '' for a root record
    run text not null,
    body blob not null,               -- the exact bytes that `id` names, UTF-8 JSON, deflated; or a reference to a file
    file text                         -- name in outputs/ when the bytes are over 8 KB
);
create index if not exists chain_roots on chain (run) where parent = '';
create table if not exists named_files (
    name text not null,               -- of a file in outputs/ that a row names; '', of no run: all runs are listed here
    run text not null,                -- whose row it is
    primary key (name, run)
) without rowid;
create table if not exists model_calls (
    run text not null,
    agent text not null,
    role text not null,
    ordinal integer not null,         -- 0-based, per (run, agent, role)
    task text not null,               -- graph task that asked
    request_hash text not null,
    record text not null,             -- chain record of the reply
    model text not null,
    finish_reason text,
    problem text,
    input_tokens integer not null,
    output_tokens integer not null,
    cached_tokens integer not null,
    written_tokens integer not null default 0, -- of the input: to the provider's cache
    thought_tokens integer not null,
    usd real,                         -- what it cost by the prices of then; null: unknown
    duration_ms integer not null,
    at real not null,
    primary key (run, agent, role, ordinal)
);
create table if not exists reservations (
    run text not null,
    task text not null,               -- graph task whose model call this is
    epoch integer not null,           -- of its driver: what is left of an earlier one was cut by a kill
    agent text not null,
    model text not null,
    tokens integer not null,          -- estimated, of the request
    under_way integer not null,       -- 0: cut off, counts at its estimate; the row of an answered call is deleted
    at real not null,
    primary key (run, task, epoch)
) without rowid;
create table if not exists journal (
    run text not null,
    message text not null,
    idx integer not null,
    attempt integer not null,
    tool text not null,
    args_hash text not null,
    args text,                        -- JSON, when they aren't those of the chain
    state text not null,              -- scheduled | intent | done
    planned text,                     -- JSON {path, before, after}
    result text,                      -- JSON ToolResult
    result_file text,                 -- name in outputs/ when the result is over 8 KB
    record text,                      -- chain record that holds the result's text, once it is in the conversation
    epoch integer not null,
    intent_at real,
    done_at real,
    primary key (run, message, idx, attempt)
);
create table if not exists effects (
    run text not null,
    task text not null,               -- graph task of the node
    key text not null,                -- that the node gave it
    place text not null,              -- names of the nodes around it: tasks have other ids in a replay
    attempt integer not null,         -- grows with every call of its function
    state text not null,              -- intent | failed | done
    type text,                        -- of the result, as checkpoints have it
    value blob,
    epoch integer not null,
    intent_at real not null,
    done_at real,
    primary key (run, task, key)
);
create table if not exists node_updates (
    run text not null,
    task text not null,               -- graph task of the node
    place text not null,              -- names of the nodes around it
    node text not null,
    code text not null,               -- hash of its code
    state text not null,              -- hash of what it read
    type text not null,               -- of what it wrote, as checkpoints have it
    wrote blob not null,
    raised text not null,             -- in place of that: its error's line; '' for none
    at real not null,
    primary key (run, task, node, state)
);
create table if not exists decisions (
    run text not null,
    message text not null,
    idx integer not null,
    task text not null,               -- graph task that decided; the row is written with its writes, so once
    attempt integer not null,
    body text not null,               -- JSON Decided
    at real not null,
    primary key (run, message, idx, task)
);
create table if not exists hook_calls (
    run text not null,
    event text not null,
    key text not null,                -- of the firing, the same after a kill
    hook text not null,               -- digest of its name and command; '' for the firing as a whole
    place integer not null,           -- in the order of the firing's hooks
    attempt integer not null,         -- grows when a person says redo
    subject text not null,            -- what matchers looked at
    name text not null,
    source text not null,             -- the settings file that it stands in
    command text not null,
    idempotent integer not null,
    state text not null,              -- intent | redo | done | skipped
    reply text,                       -- JSON of what it said
    reply_file text,                  -- name in outputs/ when that is over 8 KB
    epoch integer not null,
    intent_at real not null,
    done_at real,
    primary key (run, event, key, hook)
);
create table if not exists server_replies (
    run text not null,
    asked text not null,              -- JSON list: an MCP server; and of it a resource's address, or a prompt
    reply text not null,              -- JSON: what it offers; what it told
    at real not null,
    primary key (run, asked)
);
create table if not exists approvals (
    id text primary key,              -- RUN-BATCH.CALL
    run text not null,
    key text not null,                -- call key and kind
    request text not null,            -- JSON ApprovalRequest
    asked_at real not null,
    interrupt text,                   -- LangGraph's id once the run really waits for it
    answer text,                      -- JSON Answer; immutable
    answered_at real,
    answered_by text,
    rule text,                        -- JSON SessionRule of an always-choice
    superseded integer not null default 0,
    number integer,                   -- short name; never used twice in a run, the runs above and below it
    seq integer not null default 0,   -- in the order in which the run asked
    unique (run, key)
);
-- Nodes that ran in one graph task of a superstep; whoever reads takes them from the view `steps`.
create table if not exists step_rows (
    run text not null,
    seq integer not null,             -- of the first
    task text not null,               -- first eight digits of its id
    root_step integer not null,       -- number of the root step around it
    superstep text not null,          -- end of the checkpoint id that it ran in: the same for what ran side by side
    started real not null,
    nodes text not null,              -- JSON, of each: kind, microseconds from `started` and of its work; then, where
                                      -- it isn't its kind's, its namespace; and why it decided so, for people
    primary key (run, seq)
);
create table if not exists step_kinds (
    kind integer primary key,         -- digest of the rest
    namespace text not null,          -- '' for the root; @ stands for the task
    mark text not null,               -- of nodes that share a task: follows the names of task and superstep
    workflow text not null,
    node text not null,
    keys text not null,               -- changed keys, comma-separated
    route text not null               -- label its router returned; '' for none
);
create view if not exists steps as
    select r.run, r.seq + n.key as seq,
           coalesce(json_extract(n.value, '$[3]'), replace(k.namespace, '@', r.task)) as namespace,
           r.task || k.mark as task, k.workflow, k.node,
           r.started + json_extract(n.value, '$[1]') / 1e6 as started, json_extract(n.value, '$[2]') / 1e3 as ms,
           k.keys, nullif(k.route, '') as route, json_extract(n.value, '$[4]') as reason,
           r.root_step, r.superstep || k.mark as superstep, r.seq as first
    from step_rows r, json_each(r.nodes) n left join step_kinds k on k.kind = json_extract(n.value, '$[0]');
create table if not exists snapshots (
    run text not null,
    message text not null,
    idx integer not null,
    attempt integer not null,
    seq integer not null,             -- in the order in which calls began
    root_step integer not null,       -- number of the root step that was the newest
    repository text not null,         -- folder in snapshots/
    before text not null,             -- commit
    after text,                       -- commit; null: killed before it was made
    inherited integer not null default 0, -- 1: of the run that this one was forked from
    at real not null,
    primary key (run, message, idx, attempt)
) without rowid;
create table if not exists undone (
    run text not null,
    seq integer not null,
    at real not null,                 -- unix time
    text text not null,               -- what a person took back, for people and the model
    record text,                      -- chain record that told the model; null: not told yet
    primary key (run, seq)
) without rowid;
create table if not exists seen_files (
    run text not null,
    agent text not null,              -- path of the sub-agent whose conversation it is; '' for the run's own
    path text not null,               -- as the model names it: relative to the workspace, or absolute
    seq integer not null,             -- of the path, in the order in which it was seen
    record text not null,             -- chain record that shows it, or has the call
    digest text not null,             -- sha256 of the file's bytes; '' if it was gone
    how text not null,                -- read | part | written | told
    body blob,                        -- its text without secrets, deflated; null: long, or not text
    at real not null,
    primary key (run, agent, path, seq)
);
create table if not exists traces (
    run text primary key,
    trace text not null,              -- of OpenTelemetry: 32 hex digits
    parent text not null,             -- span that the first drive is a part of; '' for none
    root text not null,               -- span of the first drive
    until real not null               -- unix time up to which a collector has the run's spans
) without rowid;
create table if not exists lease (
    run text primary key,
    host text not null,
    boot text not null,
    pid integer not null,
    started text not null,            -- the process's start time, as the system counts it
    epoch integer not null,
    beat integer not null,            -- grows with every heartbeat; a clock isn't compared
    held integer not null,            -- 1 while the owner drives
    stop text                         -- why it is to end: stop | cancel | timeout; null: it isn't
) without rowid;
create table if not exists sessions (
    session text primary key,         -- as an editor knows it; the id of its first run
    run text not null,                -- that it shows now; it may not have begun
    workspace text not null,
    at real not null,                 -- unix time of the last change
    chosen text not null default '{}' -- JSON: the options that count from its next prompt on, by name
) without rowid;
-- What programs see of runs through the API of `interlock serve`, and their tokens. A server's store has no such rows:
-- each host that serves keeps them in a file of its own.
create table if not exists served (
    kind text not null,               -- thread | drive | assistant | token | prompt
    id text not null,                 -- as programs know it: a UUID; a token's name; a prompt's run
    thread text not null,             -- of a drive; '' otherwise
    run text not null,                -- '' where there is none (yet)
    body text not null,               -- JSON
    at real not null,                 -- unix time of its making
    primary key (kind, id)
);
create index if not exists served_thread on served (thread);
create index if not exists served_run on served (run);
insert into named_files (name, run) select '', '' where not exists (select 1 from runs) on conflict do nothing;
-- Who decided and did what (`audit.py`).
create table if not exists audit (
    seq integer primary key,          -- from 1, without gaps
    at real not null,                 -- unix time
    kind text not null,
    run text not null,
    tbl text not null,                -- the row that it is about: table, and key as a JSON list
    key text not null,
    body text,                        -- JSON: what is recorded of the row; null: it was removed; or key and body,
                                      -- deflated, in base64
    hash text not null,               -- sha256 of the hash before and of the columns above
    mac text not null                 -- key id:HMAC of the hash
);
