"""unpacked_files: finds what archives, copied folders, git's checkouts and patches bring into the workspace.

Their names are looked at, up to a limit. What can't be looked into asks where it goes into the workspace's own folder.
"""

import lzma
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice, pairwise, product
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.disk import read_file
from interlock.services.files.protected import fold_name, is_safe_to_create
from interlock.services.policy.git import files_changed_by_checkout
from interlock.services.policy.plain_reading import LineReading, resolve_readable_or_none
from interlock.services.shell.model import ShellCommand, program_name, to_name_set

Texts = Sequence[str]
"""What one word may stand for."""
_NOTHING: Texts = ()
_MOST_ENTRIES = 5_000
_LARGEST = 200_000_000
"""Bytes of a packed archive whose names are read."""
_TAR = to_name_set("tar bsdtar gtar gnutar star")
_UNSEEN = to_name_set("7z 7za 7zz 7zr unrar rar unar cpio pax ar jar bsdcpio dpkg-deb rpm2cpio ditto")
_OTHER_FORMATS = (b"\x28\xb5\x2f\xfd", b"LZIP", b"\x89LZO", b"\x1f\x9d", b"\x1f\xa0", b"\x04\x22\x4d\x18")
"""Compressed in ways that tar reads and Python doesn't."""
_CLIMBS = re.compile(r"^(\.\./)+")
_STAGES = to_name_set("update-index read-tree reset")
"""Git's commands that change what a checkout takes from the index."""
_RECURSES = re.compile(r"-[A-Za-z]*[rRa][A-Za-z]*|--recursive|--archive")
_RENAMES = re.compile(r"--(transform|xform|absolute-names|absolute-paths|unsafe|insecure)|-[A-Za-z]*[Ps]$")
OF_GIT = to_name_set("config config.worktree hooks commondir modules")


class _Member(NamedTuple):
    path: str
    link_target: str = ""
    """Where a link leads."""


class _UnknownNames(Exception):  # noqa: N818 - no error: the names aren't known
    """What would be written can't be known."""


def describe_unpacked_trusted_file(
    program: str, command: ShellCommand, words: Sequence[Texts], reading: LineReading
) -> str | None:
    """Return a clause naming a trusted file among those that a command unpacks or copies; None: there is none."""
    try:
        each = _find_written_members(program, command, words, reading)
        if each is None:
            return None
        places, members = each
        return next(
            filter(None, (_describe_trusted_member(m, place, reading) for m in members for place in places)),
            None,
        )
    except _UnknownNames as unseen:
        places = (real for place in unseen.args[0] for real in _real_paths(place, reading))
        inside = any(root.is_relative_to(real) for real in places for root in reading.workspace.roots)
        return "writes files into the workspace's own folder whose names aren't known" if inside else None


_WrittenMembers = tuple[Sequence[str], Iterator[_Member]]
"""Folders in which they may lie, and what is written there."""


def _find_written_members(
    program: str, command: ShellCommand, words: Sequence[Texts], reading: LineReading
) -> _WrittenMembers | None:
    if program in _TAR:
        return _members_from_tar(words, reading)
    if program == "unzip":
        return _members_from_unzip(words, reading)
    if program in _UNSEEN:
        return _reject_unsupported_formats(program, words)
    if program in ("cp", "rsync", "scp", "mv", "ditto"):
        return _members_from_copied_folders(program, words, reading)
    if program == "git":
        return _members_from_git_checkout(command, reading)
    if program in ("python", "python3") and [w.text for w in command.words[1:3]] in (
        ["-m", "zipfile"],
        ["-m", "tarfile"],
    ):
        return _members_from_python_archive(words, reading)
    return None


def _describe_trusted_member(member: _Member, place: str, reading: LineReading) -> str | None:
    leads = posixpath.join(posixpath.dirname(member.path), member.link_target)
    for path in (member.path, leads) if member.link_target else (member.path,):
        whole = posixpath.normpath(posixpath.join(place, path))
        if not reading.folders:  # `..` of an unknown folder may be the workspace
            whole = _CLIMBS.sub("", whole)
        parts = [fold_name(part) for part in posixpath.normpath(whole).split("/")]
        if "node_modules" in parts:
            continue
        for base in reading.folders_or_root:
            found = reading.workspace.find_protection(posixpath.join(base, whole))
            if found is not None:
                there = os.path.lexists(reading.workspace.root / base / whole)
                if there or not is_safe_to_create(found.part):
                    return f"writes {posixpath.normpath(whole)!r} ({found.what})"
        at = next((at for at, part in enumerate(parts) if part in (".git", "git~1")), None)
        of_git = at is not None and parts[at + 1 : at + 2] and parts[at + 1] in OF_GIT
        places = _real_paths(whole, reading) if of_git else ()
        if any(real.is_relative_to(root) for real in places for root in reading.workspace.roots):
            return f"writes {posixpath.normpath(whole)!r} (what git runs and believes)"
    return None


def _real_paths(path: str, reading: LineReading) -> list[Path]:
    return [Path(os.path.realpath(reading.workspace.root / base / path)) for base in reading.folders_or_root]


def _existing_files(texts: Texts, reading: LineReading) -> list[Path]:
    places = [reading.workspace.root / base / text for base in reading.folders_or_root for text in texts]
    return [place for place in places if os.path.isfile(place)]  # noqa: PTH113 - a name may be too long for Path.is_file


def _require_existing_archives(named: Texts, folders: Sequence[str], reading: LineReading) -> list[Path]:
    """Return the archives that are there. Raise `_UnknownNames` if one isn't, and the line may make it."""
    found = _existing_files(named, reading)
    if not found and (not named or len(reading.line.commands) > 1 or {"-", "/dev/stdin"} & {*named}):
        raise _UnknownNames(folders)
    return found


# ---- archives


def _members_from_tar(words: Sequence[Texts], reading: LineReading) -> _WrittenMembers | None:
    if not words:
        return None
    letters = "".join(t[0].lstrip("-") for n, t in enumerate(words) if _is_letter_cluster(t[0], n == 0))
    flat = [text for texts in words for text in texts]
    if "x" not in letters and not {"--extract", "--get"} & {*flat}:
        return None
    folders = [*_option_values(words, ("-C", "--directory", "--cd"))] or ["."]
    if any(map(_RENAMES.fullmatch, (text.partition("=")[0] for text in flat[1:]))):
        raise _UnknownNames(["."])
    strip = next(iter(_option_values(words, ("--strip-components", "--strip"))), "0")
    archives = _require_existing_archives([*tar_archive_names(words)], folders, reading)
    skipped = int(strip) if strip.isdigit() else 0
    return folders, (m for file in archives for m in _tar_members(file, skipped, folders))


def _is_letter_cluster(text: str, is_first: bool) -> bool:
    return bool(re.fullmatch(r"-[A-Za-z]+", text)) or (is_first and bool(re.fullmatch(r"[A-Za-z]+", text)))


def tar_archive_names(words: Sequence[Texts]) -> Iterator[str]:
    """Yield the archives that tar is told to read."""
    for number, (texts, after) in enumerate(pairwise((*words, _NOTHING))):
        text = texts[0]
        if text.startswith("--file="):
            yield text.partition("=")[2]
        elif text == "--file":
            yield from after
        elif _is_letter_cluster(text, number == 0) and "f" in text:
            glued = text.rpartition("f")[2] if text.startswith("-") else ""
            yield from (glued,) if glued else ()
            valued = sum(letter in "fCbIX" for letter in text.lstrip("-"))
            yield from after if not glued and valued == 1 else (t for w in words for t in w)
        elif re.match(r"-[A-Za-z]*f.", text) and not text.startswith("--"):
            yield text.partition("f")[2]


def _tar_members(file: Path, strip_components: int, folders: Sequence[str]) -> Iterator[_Member]:
    if file.stat().st_size > _LARGEST:
        raise _UnknownNames(folders)
    try:
        with tarfile.open(file) as archive:
            for count, member in enumerate(archive):
                if count > _MOST_ENTRIES:
                    raise _UnknownNames(folders)
                parts = member.name.lstrip("/").split("/")
                for some in dict.fromkeys(
                    (strip_components, strip_components + (parts[0] == "." and strip_components > 0))
                ):
                    name = "/".join(parts[some:])
                    if name:
                        yield _Member(name, member.linkname if member.issym() or member.islnk() else "")
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        if zipfile.is_zipfile(file):  # bsdtar reads it
            yield from _zip_members(file, False, folders)
            return
        with open(file, "rb") as opened:  # noqa: PTH123 - as above
            other = opened.read(8).startswith(_OTHER_FORMATS)
        if other or not isinstance(error, tarfile.ReadError):
            raise _UnknownNames(folders) from error


def _members_from_unzip(words: Sequence[Texts], reading: LineReading) -> _WrittenMembers | None:
    options = [texts[0] for texts in words if texts[0].startswith("-")]
    letters = {letter for option in options if not option.startswith("--") for letter in option[1:]}
    if letters & {*"lptvZcz"}:
        return None
    folders = [*_option_values(words, ("-d",))] or ["."]
    operands = [texts for texts in words if not texts[0].startswith("-")]
    named = [name for texts in operands[:1] for text in texts for name in (text, f"{text}.zip")]
    archives = _require_existing_archives(named, folders, reading)
    return folders, (m for file in archives for m in _zip_members(file, "j" in letters, folders))


def _zip_members(file: Path, junk_paths: bool, folders: Sequence[str]) -> Iterator[_Member]:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_ENTRIES:
                raise _UnknownNames(folders)
            for entry in entries:
                is_link = stat.S_ISLNK(entry.external_attr >> 16) and entry.file_size < 4_096
                leads = archive.read(entry).decode(errors="replace") if is_link else ""
                yield _Member(
                    posixpath.basename(entry.filename) if junk_paths else entry.filename.lstrip("/"), leads
                )
    except zipfile.BadZipFile:
        return  # unzip can't read it either
    except (OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise _UnknownNames(folders) from error


def _reject_unsupported_formats(program: str, words: Sequence[Texts]) -> _WrittenMembers | None:
    """Raise `_UnknownNames` if a program unpacks a format that isn't looked into."""
    flat = [text for texts in words for text in texts]
    first = flat[0] if flat else ""
    extracts = {
        "cpio": any(re.match(r"-[A-Za-z]*[ip]|--extract|--pass-through", text) for text in flat),
        "bsdcpio": any(re.match(r"-[A-Za-z]*[ip]", text) for text in flat),
        "pax": any(re.fullmatch(r"-[a-z]*r[a-z]*", text) for text in flat),
        "jar": "x" in first and "c" not in first.removeprefix("--extract"),
        "ar": "x" in first,
        "unar": True,
        "dpkg-deb": any(
            text in ("-x", "-X", "-R", "--extract", "--vextract", "--raw-extract") for text in flat
        ),
    }.get(program, first in ("x", "e"))
    if not extracts:
        return None
    raise _UnknownNames(
        [text[2:] for text in flat if re.match(r"-[oD].", text)]
        or [*_option_values(words, ("-D", "-o", "-C"))]
        or ["."]
    )


def _members_from_python_archive(words: Sequence[Texts], reading: LineReading) -> _WrittenMembers | None:
    given = [texts[0] for texts in words[2:]]
    if not given or given[0] not in ("-e", "--extract"):
        return None
    folders = given[2:3] or ["."]
    files = _require_existing_archives(given[1:2], folders, reading)
    if not files:
        return None
    members = (
        _zip_members(files[0], False, folders)
        if words[1][0] == "zipfile"
        else _tar_members(files[0], 0, folders)
    )
    return folders, members


# ---- folders


def _members_from_copied_folders(
    program: str, words: Sequence[Texts], reading: LineReading
) -> _WrittenMembers | None:
    if program in ("cp", "rsync", "scp") and not any(_RECURSES.fullmatch(texts[0]) for texts in words):
        return None
    operands = [texts for texts in words if not texts[0].startswith("-")]
    named = [*_option_values(words, ("-t", "--target-directory"))]
    places = named or (operands[-1] if len(operands) > 1 else ())
    sources = operands if named else operands[:-1]
    if not places:
        return None
    left_out = [*_option_values(words, ("--exclude",))] if program == "rsync" else []
    return [""], (
        member
        for place in places
        for texts in sources
        for text in texts
        for member in _copied_members(program, text, place, left_out, reading)
    )


def _copied_members(
    program: str, source: str, place: str, excluded_patterns: Sequence[str], reading: LineReading
) -> Iterator[_Member]:
    """Yield what a copy of a folder writes. What is moved within the workspace had its names before."""
    if program in ("rsync", "scp") and re.match(r"[\w.@-]+:", source):
        raise _UnknownNames([place])
    for base in reading.folders_or_root:
        top = str(reading.workspace.root / base / source)
        if not os.path.lexists(top) and _can_line_create_source(source, reading):
            raise _UnknownNames([place])
        if not os.path.isdir(top) or (  # noqa: PTH112 - a name may be too long for Path.is_dir
            program == "mv" and resolve_readable_or_none(posixpath.join(base, source), reading.workspace)
        ):
            continue
        there = os.path.isdir(reading.workspace.root / base / place)  # noqa: PTH112 - as above
        name = posixpath.basename(source.rstrip("/"))
        whole = name in ("", ".", "..") or (program == "rsync" and source.endswith("/")) or not there
        prefixes = [place] if whole else [posixpath.join(place, name)]
        prefixes += (
            [posixpath.join(place, name)] if whole and name not in ("", ".", "..") and not there else []
        )
        seen = 0
        for folder, folders, files in os.walk(top):
            seen += len(folders) + len(files)
            if seen > _MOST_ENTRIES:
                raise _UnknownNames([place])
            folders[:] = [
                one
                for one in folders
                if one not in ("node_modules", "objects") and not _is_excluded(one, excluded_patterns)
            ]
            inner = os.path.relpath(folder, top)
            for one in (*folders, *files):
                if not _is_excluded(one, excluded_patterns):
                    yield from (_Member(posixpath.normpath(posixpath.join(p, inner, one))) for p in prefixes)


def _can_line_create_source(source: str, reading: LineReading) -> bool:
    """Return whether another command of the line may make a folder that isn't there, all of which is copied."""
    everything = re.fullmatch(r"[.*?{},]*", posixpath.basename(source)) is not None
    return everything and len(reading.line.commands) > 1


def _is_excluded(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern.strip("/")) for pattern in patterns)


# ---- git


def _members_from_git_checkout(command: ShellCommand, reading: LineReading) -> _WrittenMembers | None:
    """Return files that git takes from a revision or its index; a switch of the whole tree is the user's own
    history."""
    words = [word.text for word in command.words[1:]]
    folders = [reading.workspace.root / base for base in reading.folders_or_root]
    others = (c.argv[1:3] for c in reading.line.commands if c.argv[:1] == ("git",))
    staged = any(
        _STAGES & {*words} and not (words[0] == "reset" and words[1:] in ((), ("HEAD",))) for words in others
    )
    changed = (
        name
        for folder in folders
        for name in islice(files_changed_by_checkout(folder, words, index_changed=staged), _MOST_ENTRIES)
    )
    return [""], (_Member(os.path.relpath(name, reading.workspace.root)) for name in changed)


def _option_values(words: Sequence[Texts], options: Sequence[str]) -> Iterator[str]:
    for texts, after in pairwise((*words, _NOTHING)):
        name, sign, value = texts[0].partition("=")
        if texts[0] in options:
            yield from after
        elif sign and name in options:
            yield value
        elif len(texts[0]) > 2 and texts[0][:1] == "-" and texts[0][1] != "-":
            if texts[0][:2] in options:
                yield texts[0][2:]
            if texts[0][1:].isalpha() and f"-{texts[0][-1]}" in options:
                yield from after  # letters together, of which the last has a value


# ---- patches: no argument of the command names the files that they change

_APPLIES = (("apply",), ("am",))
UNSEEN_PATCH = "applies a patch that is only known when it runs"
_LARGEST_PATCH = 5_000_000
"""Bytes of a patch that is looked into."""
_NAMED = re.compile(
    r"^(?:\+\+\+|---|\*\*\*|(?:rename|copy) (?:from|to)|Index:|diff --git) +(.+?)[ \t]*$", re.MULTILINE
)
_ESCAPED = re.compile(r"\\([0-7]{3}|.)")


def describe_patched_trusted_file(command: ShellCommand, reading: LineReading) -> str | None:
    """Return a clause about a file that the program trusts, and that the patch of this command changes or may
    change."""
    words = command.argv
    if not words or not (program_name(words[0]) == "patch" or (words[0] == "git" and words[1:2] in _APPLIES)):
        return None
    read = (r.target.text for r in reading.line.redirects if r.kind == "read" and r.target is not None)
    named = [
        text for word in (*words[1:], *read) for text in (word, word.partition("=")[2], word[2:]) if text
    ]
    found = _existing_files(named, reading)
    if command.may_read_pipe or (not found and len(reading.line.commands) > 1):  # another command may make it
        return UNSEEN_PATCH
    try:
        changed = [*_file_names_in_patches(found)]
    except OSError:  # too large, or unreadable
        return UNSEEN_PATCH
    for path, base in product(changed, reading.folders_or_root):
        if touched := reading.workspace.find_protection(posixpath.join(base, path)):
            return f"applies a patch that changes {touched.part!r} ({touched.what})"
    return None


def _file_names_in_patches(patches: Sequence[Path]) -> Iterator[str]:
    """Yield the files that patches name; git quotes odd names."""
    for patch in patches:
        for name in _NAMED.findall(read_file(patch, _LARGEST_PATCH).decode("utf-8", "replace")):
            for one in (name.partition("\t")[0], *name.split()):
                yield _ESCAPED.sub(_unescape_octal_or_character, one.strip('"'))


def _unescape_octal_or_character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8)) if len(escaped[1]) == 3 else escaped[1]
