-- Who may do what. Give each person and worker a role of their own, and grant one of these three:
--     create role anna login password '…'; grant interlock_submitter to anna;
-- `interlock_worker` drives runs; `interlock_submitter` starts, decides and stops runs of workers, and drives none;
-- `interlock_viewer` looks at them.
-- No row here lets anybody in: the tokens of `interlock serve`, and what it drives, are in a file of its host. Of its
-- table, which earlier versions used, nobody may write rows.
-- Use a database that holds nothing else: the grants are for every table of the schema.
do $$ declare name text; begin
    foreach name in array array['interlock_worker', 'interlock_submitter', 'interlock_viewer'] loop
        if not exists (select from pg_roles where rolname = name) then execute format('create role %I', name); end if;
    end loop;
end $$;
grant usage on schema public to interlock_worker, interlock_submitter, interlock_viewer;
grant select on all tables in schema public to interlock_worker, interlock_submitter, interlock_viewer;
grant insert, update, delete on all tables in schema public to interlock_worker;
grant insert, update on runs, approvals, audit, lease, chain, named_files to interlock_submitter;
grant insert, update, delete on schedules, procrastinate_jobs, procrastinate_events, procrastinate_periodic_defers
    to interlock_submitter;
revoke insert, update on served from interlock_worker;
grant usage, select on all sequences in schema public to interlock_worker, interlock_submitter;
