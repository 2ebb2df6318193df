-- Tables that only a store on a server has, beside those of `schema.sql`.
-- What is too long for a row, and snapshots (`blobs.py`).
create table if not exists blobs (
    name text not null,               -- outputs/NAME, plans/RUN/NAME, snapshots/COMMIT
    part integer not null,
    body blob not null,
    owner text not null,              -- a plan's run, a snapshot's repository; '' for outputs
    base text not null,               -- the snapshot that this one continues; '' for none
    at real not null,
    primary key (name, part)
);
-- What users, workflows and models may use over all workers, and what they used (`limits.py`).
create table if not exists limits (
    kind text not null,               -- user | workflow | model
    name text not null,               -- or *
    runs integer,                     -- driven at once
    requests integer,                 -- to models, a minute
    tokens integer,                   -- a minute
    usd_per_day real,
    usd_per_month real,
    primary key (kind, name)
);
create table if not exists limit_use (
    kind text not null,
    name text not null,
    period text not null,             -- day | month
    since integer not null,           -- unix time at which the period began
    requests integer not null,
    tokens integer not null,
    usd real not null,
    primary key (kind, name, period)
);
create table if not exists limit_seconds (
    kind text not null,
    name text not null,
    since integer not null,           -- unix time at which the second began
    requests integer not null,
    tokens integer not null,
    primary key (kind, name, since)
);
-- Runs that workers start at set times (`schedules.py`).
create table if not exists schedules (
    name text primary key,
    cron text not null,
    zone text not null,               -- time zone that the cron line counts in
    workflow text not null,
    title text not null,
    workspace text not null,
    queue text not null,
    options text not null,            -- JSON: what its runs are started with
    input text not null,              -- JSON
    run text not null default '',     -- that was started last
    said text not null default ''     -- why none was started the last time
);
