create table meta (key text primary key, value text not null) without rowid;
create table files (
    id integer primary key,
    path text not null unique,        -- relative to the workspace
    language text not null,
    inside text not null,             -- the left-out folder around it, which a search must name; empty: none
    embedded integer not null,        -- 0: its vectors couldn't be computed
    signature text not null,          -- size, times and inode; empty: it may have changed right after it was read
    sha256 text not null
);
create table chunks (
    id integer primary key,
    file integer not null references files (id) on delete cascade,
    start integer not null,
    end integer not null,
    name text not null,
    code text not null
);
create index chunks_file on chunks (file);
create table vectors (chunk integer primary key references chunks (id) on delete cascade, vector blob not null);
create virtual table terms using fts5 (
    path, name, said, code, content = '', tokenize = "porter unicode61 remove_diacritics 2 tokenchars '_'"
);
create virtual table counts using fts5vocab (terms, 'row');
