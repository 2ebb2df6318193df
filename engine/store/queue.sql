-- What workers of a store in a file need: the rows that wake runs, limits, schedules, and what clones leave.
-- What a run in a clone leaves (`blobs.py`): its patch, and the commits of its own.
create table if not exists blobs (
    name text not null,               -- patches/RUN, commits/RUN
    part integer not null,
    body blob not null,
    owner text not null,              -- the run
    base text not null,               -- ''
    at real not null,
    primary key (name, part)
) without rowid;
create index if not exists blobs_owner on blobs (owner);
-- What users, workflows and models may use over all workers, and what they used (`rate_limits.py`).
create table if not exists limits (
    kind text not null,               -- user | workflow | model
    name text not null,               -- or *
    runs integer,                     -- driven at once
    requests integer, tokens integer, -- a minute
    usd_per_day real, usd_per_month real,
    primary key (kind, name)
) without rowid;
create table if not exists limit_use (
    kind text not null, name text not null,
    period text not null,             -- day | month
    since integer not null,           -- unix time at which the period began
    requests integer not null, tokens integer not null, usd real not null,
    primary key (kind, name, period)
) without rowid;
create table if not exists limit_seconds (
    kind text not null, name text not null,
    since integer not null,           -- unix time at which the second began
    requests integer not null, tokens integer not null,
    primary key (kind, name, since)
) without rowid;
-- Runs that workers start at set times (`queue.py`).
create table if not exists schedules (
    name text primary key not null,
    cron text not null,
    zone text not null,               -- time zone that the cron line counts in
    workflow text not null, title text not null, workspace text not null, queue text not null,
    options text not null,            -- JSON: what its runs are started with
    input text not null,              -- JSON
    run text not null default '',     -- that was started last
    said text not null default ''     -- why none was started the last time
) without rowid;
-- What wakes a run that nobody drives (`wakes.py`). A server's store has Procrastinate's jobs in their place.
create table if not exists wakes (
    id integer primary key,
    kind text not null,               -- run | decision | limit | schedule
    key text not null,                -- the run; or `schedule:` and a name
    queue text not null,              -- `held:` and a limit: it waits until that has room
    priority integer not null,        -- its place in the line
    due real not null,                -- unix time: not before that
    since real not null,              -- unix time of its making
    user_name text not null,          -- whose limits hold
    workflow text not null,
    model text not null,              -- whose limit it waited for; '' otherwise
    server text not null,             -- the turn of a page's server; '' otherwise
    args text not null,               -- JSON
    attempts integer not null default 0, -- times that a worker died with it
    begun real,                       -- unix time at which a worker took it; null: it waits
    admitted real,                    -- unix time from which it counts for limits
    stop integer not null default 0   -- somebody wants its end
);
create unique index if not exists wakes_waiting on wakes (key) where begun is null;
create index if not exists wakes_key on wakes (key);
create index if not exists wakes_line on wakes (priority) where begun is null;
