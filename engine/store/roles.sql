-- Who may do what. Give each person and worker a role of their own, and grant one of these two:
--     create role anna login password '…'; grant interlock_worker to anna;
-- `interlock_worker` starts, drives and decides runs; `interlock_viewer` looks at them.
-- No row here lets anybody in: the tokens of `interlock serve`, and what it drives, are in a file of its host. Of its
-- table, which earlier versions used, nobody may write rows.
-- Use a database that holds nothing else: the grants are for every table of the schema.
do $$ begin
    if not exists (select from pg_roles where rolname = 'interlock_worker') then create role interlock_worker; end if;
    if not exists (select from pg_roles where rolname = 'interlock_viewer') then create role interlock_viewer; end if;
end $$;
grant usage on schema public to interlock_worker, interlock_viewer;
grant select on all tables in schema public to interlock_worker, interlock_viewer;
grant insert, update, delete on all tables in schema public to interlock_worker;
revoke insert, update on served from interlock_worker;
grant usage, select on all sequences in schema public to interlock_worker;
