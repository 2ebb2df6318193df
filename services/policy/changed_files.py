"""changed_files: finds files that a command names to change them; with `-y`, trusted ones among them ask.

What a script writes by itself isn't known.
"""

import fnmatch
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

from interlock.services.files.protected import fold_name, is_harmless_git_key
from interlock.services.policy.expansion import (
    find_first_trusted_name,
    find_trusted_names,
    has_unknown_value,
    possible_paths,
)
from interlock.services.policy.git import run_git_ls_files
from interlock.services.policy.grant_coverage import is_read_only_program
from interlock.services.policy.plain_reading import LineReading
from interlock.services.policy.unpacked_files import (
    OF_GIT,
    Texts,
    describe_unpacked_trusted_file,
    tar_archive_names,
)
from interlock.services.shell.commands import LANGUAGES, SHELLS, canonical_program_name
from interlock.services.shell.danger import INDIFFERENT
from interlock.services.shell.model import ShellCommand, Word, literal_word, to_name_set
from interlock.services.shell.parse import parse_shell_line
from interlock.state.file_names import quote_name

_ALL = to_name_set("script mv tee sponge touch truncate mkdir chmod chown patch ed ex dd vipw pico nano")
"""They change whatever they name."""
_REMOVE = to_name_set("rm unlink rmdir shred")
_LAST = to_name_set("cp ln install rsync scp mv uniq xxd")
"""They change their last operand, or what is in it."""
_IN_PLACE = {
    name: re.compile(r"-[A-Za-z0-9]*i.*|--in-place.*|inplace")
    for name in to_name_set("sed gsed perl ruby awk gawk yq")
}
_UNPACKS = to_name_set("gunzip bunzip2 unxz unlzma unzstd uncompress gzip bzip2 xz lzma zstd lz4 brotli")
_ENDINGS = re.compile(r"\.(gz|bz2|xz|lzma|zst|Z|lz4|br)$")
_HOST = re.compile(r"[\w.@-]+:")
_NAMES_NEW = to_name_set("rename prename perl-rename file-rename mmv")
_REWRITES = to_name_set("black isort mdformat dos2unix unix2dos rustfmt sd")
"""Formatters that change what they are given; others say so by an option."""
_SAYS_SO = re.compile(r"--(write|fix|in-place|inplace|overwrite)(=true)?")
_FORMATS_BY_W = to_name_set("gofmt gofumpt goimports shfmt prettier")
_CHANGES_COPY = to_name_set("clone export checkout co mv move cp copy rm remove revert update")
_PACKS = to_name_set("gzip bzip2 xz lzma zstd lz4 brotli")
_KEEPS = re.compile(r"-[A-Za-z0-9]*[kclt][A-Za-z0-9]*|--(keep|stdout|to-stdout|list|test)")
_DECOMPRESSES = re.compile(r"-[A-Za-z0-9]*d[A-Za-z0-9]*|--(decompress|uncompress)")
_DATABASES = to_name_set("sqlite3 psql mysql mariadb duckdb")
_EXPORTS = re.compile(
    r"^\s*\.(output|once|save|backup|log|excel|clone)\b|\boutfile\b|^\s*\\[ogw]|\bto\s+'", re.IGNORECASE
)
_EDITORS = to_name_set("vim vi nvim view ex ed emacs emacsclient")
_OPTIONS = ("-o", "--log-file", "--logfile")
_TO = re.compile(r"--?[a-z-]*(out|dest|target|save)[a-z-]*")
"""Options by which programs name what they write."""
_NO_OUTPUT = to_name_set(
    "find ps git ls grep egrep fgrep rg set ssh mount test [ sh bash dash zsh cp mv rsync install tar unzip du"
)
"""Programs whose `-o` names no file."""
_FOLDERS = ("-t", "--target-directory")
_LOOKS = to_name_set("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_SETS = to_name_set("set unset add --add --unset --unset-all --replace-all")
_CODE_WRITES = re.compile(
    r"""["'][rbt]*[wax]\+?[bt]?["']|\bwrite|\bopen\s*\(\s*["']?[>+]|\bunlink|\brename|\breplace\(|\bremove\(|\bcopy|\bmove\("""
    r"|\btouch\(|\bchmod|\bsymlink|\blink\(|\bappend|\bmkdir|[^-=]>|\bsave|\bdump\(|\bprint\s+to\b|\bspurt\b"
)
_LINKS = r"-[A-Za-z]*[ls][A-Za-z]*|--link|--symbolic-link"
_SED_WRITES = re.compile(r"(?:^|[;{}\n\dp/$gI ])[wW]\s*(\S[^;\n}]*)")
_AWK_WRITES = re.compile(r'>>?\s*"([^"]+)"')
_FILTERS = to_name_set("grep egrep fgrep rg ag sed awk gawk head tail sort uniq cut shuf")
_NARROWS = to_name_set(
    "-empty -mtime -mmin -newer -size -regex -iregex -user -group -perm -atime -ctime -inum -links -samefile"
)
_MOST_ENTRIES = 5_000
_MOST_CODE = 20_000


_WRITES = _ALL | _REMOVE | frozenset(_LAST) | _IN_PLACE.keys()
_NOT_BEHIND = to_name_set("install patch ed ex awk gawk ruby")
"""Words that are seldom programs behind another: `npm install`."""
_BEHIND = _WRITES - _NOT_BEHIND
_UNPACK = to_name_set("tar unzip bsdtar cpio")
_LAUNCHERS = to_name_set(
    "uv poetry pipenv pdm hatch rye pixi conda sudo doas env nice timeout npx bunx setsid ionice strace busybox toybox"
)
_ELSEWHERE = to_name_set("docker podman nerdctl kubectl ssh vagrant flatpak")
_MOST_BEHIND = 50
_UNKNOWN = Word("…", False, "", True, True, depends_on_environment=True)
_CLIMBS = re.compile(r"^(\./|\.\./)+")
_EXTENDS = re.compile(r"extglob|\b(zsh|[lm]?ksh|pdksh|oksh)\b")


def join_unless_absolute_or_home(base: str, text: str) -> str:
    """Return a path of a line as tools write it: below a folder, unless it is absolute or below the home."""
    text = text.strip("\"'")
    return text if text.startswith("~") else posixpath.join(base, text)


def possible_locations(path: str, reading: LineReading) -> Iterator[str]:
    """Yield where a path of the line may lead; from an unknown folder, `..` may lead into the workspace."""
    if reading.folders:
        yield from (join_unless_absolute_or_home(base, path) for base in reading.folders)
    else:
        yield from dict.fromkeys(
            (
                join_unless_absolute_or_home(".", path),
                join_unless_absolute_or_home(".", _CLIMBS.sub("", path)),
            )
        )


def describe_trusted_file_change(command: ShellCommand, reading: LineReading) -> str | None:
    """Return a clause naming a file that the program trusts, and that the command changes; None: it names none."""
    if not command.words:
        return None
    if not command.words[0].literal:
        return _describe_change_by_unknown_program(command, reading)
    found = _describe_change_by_command(command, reading)
    inner = (
        _describe_change_by_command(one, reading)
        for one in chain(
            _commands_run_by_launcher(command),
            _commands_in_arguments(command),
            _commands_in_aliases_and_variables(command, reading),
        )
        if one.words
    )
    return found or next(filter(None, inner), None)


def _commands_in_aliases_and_variables(command: ShellCommand, reading: LineReading) -> Iterator[ShellCommand]:
    """Yield what an alias stands for, and the lines in variables that a shell runs: `bash -c "$x"`."""
    program = canonical_program_name(command.words[0].text)
    if program == "alias":
        for text in command.argv[1:]:
            for one in parse_shell_line(text.partition("=")[2]).commands:
                yield ShellCommand(command.text, (*one.words, _UNKNOWN))
    elif program in SHELLS:
        for word in command.words[1:]:
            for text in () if word.literal else possible_paths(word, reading)[1:]:
                yield from parse_shell_line(text).commands


_WRITES_SOMEWHERE = re.compile(r"[\w.+-]+|>")


def describe_trusted_change_in_unparsed_line(reading: LineReading) -> str | None:
    """Return a clause about a trusted name in a line that isn't parsed to its end, if something in it may write."""
    if not reading.line.partly_unparsed:
        return None
    known = _WRITES | LANGUAGES | SHELLS | to_name_set("> tar unzip find git curl wget xargs")
    writes = any(
        canonical_program_name(word) in known for word in _WRITES_SOMEWHERE.findall(reading.line.text)
    )
    name = find_first_trusted_name(reading.line.text) if writes else None
    return f"may change {name!r}, and isn't read to its end" if name else None


def _describe_change_by_unknown_program(command: ShellCommand, reading: LineReading) -> str | None:
    """Return a clause about a trusted file that is given to a program which is only known when it runs: `$x
    AGENTS.md`."""
    known = [text for text in possible_paths(command.words[0], reading)[1:] if text]
    each = [re.split(r"[\s,:;|]+", text) for text in known] or [["tee"]]
    plain = (
        ShellCommand(command.text, (*map(literal_word, one), *command.words[1:])) for one in each if one[0]
    )
    return next(filter(None, (_describe_change_by_command(one, reading) for one in plain)), None)


_RUNS_LINE = re.compile(r"-[a-z]*[cx]|-ex|--(exec|call|command|eval|tree-filter|shell-command|on-change|run)")
_COMMANDS_OF_THEIRS = re.compile(r"^\s*(\.shell|\.system|\\!|!|shell|spawn)\s+")


def _commands_in_arguments(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the commands of lines in the arguments that a program runs: `npx -c 'tee x'`, `gdb -ex 'shell tee x'`."""
    program, given = canonical_program_name(command.words[0].text), command.argv[1:]
    if program in INDIFFERENT | SHELLS | LANGUAGES or is_read_only_program((program,)):
        return
    texts = [after for word, after in pairwise(given) if _RUNS_LINE.fullmatch(word) or word == "foreach"]
    texts += [text.partition("=")[2] for text in given if _RUNS_LINE.fullmatch(text.partition("=")[0])]
    texts += [text for text in given if _COMMANDS_OF_THEIRS.match(text)]
    if program == "git" and given[:2] == ("bisect", "run"):
        texts.append(" ".join(given[2:]))
    for text in texts[:_MOST_BEHIND]:
        for part in (text, text.partition(";")[2], text.partition(":")[2]):
            yield from parse_shell_line(_COMMANDS_OF_THEIRS.sub("", part)).commands


def _commands_run_by_launcher(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the commands that may stand behind a program that runs others: `sudo tee x`, `busybox cp x y`."""
    program, words = canonical_program_name(command.words[0].text), command.words
    known = INDIFFERENT | _WRITES | {"git", "find", "tar", "unzip"}
    away = program in _ELSEWHERE and command.argv[1:2] != ("cp",)
    if away or program in known or is_read_only_program((program,)):
        return
    fed = program in ("xargs", "parallel")
    holes = {"{}", *(b.text for a, b in pairwise(words) if fed and a.text in ("-I", "-J", "--replace"))}
    holes |= {w.text[2:] for w in words if fed and w.text.startswith(("-I", "-J")) and len(w.text) > 2}
    for at in range(1, min(len(words), _MOST_BEHIND)):
        inner = canonical_program_name(words[at].text)
        launched = program in _LAUNCHERS and (inner in LANGUAGES or inner in _UNPACK)
        if words[at].literal and (inner in _BEHIND or launched):
            rest = [_UNKNOWN if fed and any(hole in w.text for hole in holes) else w for w in words[at:]]
            yield ShellCommand(command.text, (*rest, _UNKNOWN) if fed else tuple(rest))
            return


def _describe_change_by_command(command: ShellCommand, reading: LineReading) -> str | None:
    words = [_possible_values_and_trusted_names(word, command, reading) for word in command.words[1:]]
    program = canonical_program_name(command.words[0].text)
    if program == "git":
        plain = [text for texts in words for text in texts]
        named = chain(
            _paths_created_or_removed_by_git(plain, words), _trusted_names_in_patch_headers(plain, reading)
        )
        return (
            _describe_git_config_change(plain)
            or _describe_protected_path_change("rm", named, reading)
            or describe_unpacked_trusted_file("git", command, words, reading)
        )
    found = _describe_protected_path_change(
        program, _written_or_removed_paths(program, words), reading
    ) or describe_unpacked_trusted_file(program, command, words, reading)
    if found is not None:
        return found
    if program == "find":
        return _describe_change_by_find(command, reading)
    if program in ("fd", "fdfind"):
        return _describe_protected_path_change(program, _paths_changed_by_fd(command, reading), reading)
    return _describe_protected_path_change(
        program, _paths_written_by_inline_code(program, command, reading), reading
    )


def _describe_protected_path_change(
    program: str, paths: Iterator[str] | Sequence[str], reading: LineReading
) -> str | None:
    for path in dict.fromkeys(islice(paths, _MOST_ENTRIES)):
        for place in possible_locations(path, reading):
            if found := reading.workspace.find_protection(place):
                return f"changes {found.part!r} ({found.what})"
            if program not in _REMOVE and _is_sensitive_git_path(place):
                return f"changes {quote_name(path)} (what git runs and believes)"
    return None


def _is_sensitive_git_path(path: str) -> bool:
    """Return whether it is a repository's folder, or what git runs or believes in one."""
    parts = [fold_name(part) for part in posixpath.normpath(path).split("/")]
    at = next((at for at, part in enumerate(parts) if part in (".git", "git~1")), None)
    return at is not None and (at + 1 == len(parts) or parts[at + 1] in OF_GIT)


def _possible_values_and_trusted_names(word: Word, command: ShellCommand, reading: LineReading) -> Texts:
    """Return what a word may stand for; where that isn't in the line, also what else the line names and trusts."""
    found = possible_paths(word, reading)
    if _EXTENDS.search(reading.line.text):  # then parentheses are patterns, too
        found = (*found, *find_trusted_names(reading.line.text, reading))
    if not has_unknown_value(word, reading):
        return found
    return (
        *found,
        *find_trusted_names(word.text, reading),
        *_candidate_paths_in_rest_of_line(command, reading),
    )


def _candidate_paths_in_rest_of_line(command: ShellCommand, reading: LineReading) -> Iterator[str]:
    """Yield the trusted names in the rest of the line, of which what isn't known may be one."""
    yield from find_trusted_names(reading.line.text.replace(command.text, " "), reading)
    between: list[ShellCommand] = []
    for other in reading.line.commands:
        if other is command or (other.words and other.words[:1] == command.words[:1]):
            break
        between = [other] if other.literal and other.argv[:1] == ("find",) else [*between, other]
    programs = {canonical_program_name(c.words[0].text) for c in between if c.words}
    if not programs & _FILTERS:
        yield from _paths_from_git_ls_files(reading)
    if between and between[0].words[:1] and between[0].words[0].text == "find" and not programs & _FILTERS:
        yield from _paths_matched_by_find(between[0], reading)


_MAKES = to_name_set("mv rm clone init worktree submodule")


def _paths_created_or_removed_by_git(plain: Texts, words: Sequence[Texts]) -> Iterator[str]:
    """Yield what git makes or removes by its name."""
    yield from _option_values(words, ("--output", "--output-directory"))
    if {"archive", "format-patch"} & {*plain}:
        yield from _option_values(words, ("-o",))
    at = next((at for at, text in enumerate(plain) if not text.startswith("-")), len(plain))
    if plain[at : at + 1] and plain[at] in _MAKES and not {"--cached", "list", "status"} & {*plain}:
        yield from _written_or_removed_paths("mv", [(text,) for text in plain[at + 1 :]])


def _paths_from_git_ls_files(reading: LineReading) -> Iterator[str]:
    """Yield the files that `git ls-files` and fd list for another command of the line."""
    folders = [reading.workspace.root / base for base in reading.folders_or_root]
    for other in reading.line.commands:
        if other.argv[:2] == ("git", "ls-files") and other.literal:
            yield from chain.from_iterable(run_git_ls_files(folder, other.argv[2:]) for folder in folders)


def _written_or_removed_paths(program: str, words: Sequence[Texts]) -> Iterator[str]:
    operands = [texts for texts in words if not texts[0].startswith("-") or texts[0] == "-"]
    flat = [text for texts in words for text in texts]
    if program in _ALL | _REMOVE:
        yield from (text.removeprefix("of=") for texts in operands for text in texts)
    linked = program == "ln" or (program == "cp" and any(re.fullmatch(_LINKS, text) for text in flat))
    formats = program in _REWRITES or any(map(_SAYS_SO.fullmatch, flat))
    formats |= program in _FORMATS_BY_W and "-w" in flat
    named = program in ("svn", "hg", "gh") and not _CHANGES_COPY.isdisjoint(flat)
    if linked or named or (formats and program not in _NO_OUTPUT):
        yield from chain.from_iterable(operands)  # by a link they are changed under its name
    if program in _LAST and operands:
        places = [*_option_values(words, _FOLDERS)] or operands[-1]
        local = (place for place in places if program not in ("scp", "rsync") or not _HOST.match(place))
        yield from _destination_paths([*local], operands)
    elif program in _IN_PLACE and any(map(_IN_PLACE[program].fullmatch, flat)):
        yield from chain.from_iterable(operands)
    elif program in _PACKS and not any(map(_DECOMPRESSES.fullmatch, flat)):
        yield from () if any(map(_KEEPS.fullmatch, flat)) else chain.from_iterable(operands)
    elif program in _UNPACKS:
        yield from (_ENDINGS.sub("", text) for texts in operands for text in texts)
    elif program in ("curl", "wget"):
        yield from _downloaded_paths(program, words, operands)
    elif program == "cmake" and "-E" in flat:
        yield from flat
    elif program == "zip":
        yield from chain.from_iterable(operands[:1])
    elif program == "tar" and flat[:1] and re.match(r"-?[A-Za-z]*c|--create", flat[0]):
        yield from tar_archive_names(words)
    if program not in _NO_OUTPUT and not is_read_only_program((program,)):
        yield from _option_values(words, _OPTIONS)
        yield from _option_values(words, ("-O",) if program in ("wget", "gh") else ())


def _destination_paths(destinations: Texts, operands: Sequence[Texts]) -> Iterator[str]:
    """Yield the places and what they hold afterwards, if they are folders."""
    bases = dict.fromkeys(posixpath.basename(_HOST.sub("", text)) for texts in operands for text in texts)
    for place in destinations:
        yield place
        yield from (posixpath.join(place, name) for name in bases if name)


def _downloaded_paths(program: str, words: Sequence[Texts], operands: Sequence[Texts]) -> Iterator[str]:
    """Yield the files that a download names after its address."""
    flat = [text for texts in words for text in texts]
    remote = program == "wget" or any(
        re.fullmatch(r"-[A-Za-z]*[OJ][A-Za-z]*|--remote-name(-all)?", t) for t in flat
    )
    folders = [*_option_values(words, ("-P", "--directory-prefix", "--output-dir")), ""]
    addresses = (text.partition("?")[0] for texts in operands for text in texts if remote)
    names_there = [posixpath.basename(address) for address in addresses]
    yield from (posixpath.join(folder, name) for folder in folders for name in names_there if name)


def _option_values(words: Sequence[Texts], options: Sequence[str]) -> Iterator[str]:
    """Yield the values of options: behind the sign, in the next word, or behind a letter."""
    for texts, after in pairwise((*words, ())):
        for text in texts:
            if text[:1] != "-":
                continue
            if text in options:
                yield from after
            name, sign, value = text.partition("=")
            to = options is _OPTIONS
            if sign and ((name in options and name.startswith("--")) or (to and _TO.fullmatch(name))):
                yield value
            elif to and _TO.fullmatch(text):
                yield from after
            elif len(text) > 2 and text[1] != "-" and text[:1] == "-":
                if text[:2] in options:
                    yield text[2:]
                if text.isascii() and text[1:].isalpha() and f"-{text[-1]}" in options:
                    yield from after  # letters together, of which the last has a value


# ---- code in arguments and here-documents


def _paths_written_by_inline_code(program: str, command: ShellCommand, reading: LineReading) -> Iterator[str]:
    """Yield the trusted names in code on the line that writes."""
    given = [word.text for word in command.words[1:]]
    texts = [r.text for r in reading.line.redirects if r.kind == "text" and r.text]
    if program in ("sed", "gsed"):
        yield from (name.strip() for text in given for name in _SED_WRITES.findall(text))
    elif program in ("awk", "gawk", "mawk"):
        yield from (name for text in given for name in _AWK_WRITES.findall(text))
        yield from (value.partition("=")[2] for option, value in pairwise(given) if option == "-v")
    elif program in _NAMES_NEW or (program in _DATABASES and any(map(_EXPORTS.search, given))):
        yield from chain.from_iterable(find_trusted_names(text, reading) for text in given)
    elif program in _EDITORS:
        yield from chain.from_iterable(find_trusted_names(text, reading) for text in (*given, *texts))
    elif program in LANGUAGES:
        inline = [
            text
            for option, text in pairwise(given)
            if re.fullmatch(r"-\w*[ceEpr]|--eval|--print|eval", option)
        ]
        inline += texts if all(text.startswith("-") or "dev/" in text for text in given) else []
        for code in inline:
            if len(code) > _MOST_CODE or _CODE_WRITES.search(code):
                yield from find_trusted_names(code, reading)
    elif program == "patch":
        yield from _trusted_names_in_patch_headers(["apply"], reading)


_HEADER = re.compile(r"^(?:\+\+\+|---|\*\*\*|Index:|diff|rename|copy) .*$", re.MULTILINE)


def _trusted_names_in_patch_headers(words: Sequence[str], reading: LineReading) -> Iterator[str]:
    """Yield the trusted names in the heads of a patch that stands in the line."""
    if {"apply", "am"} & {*words[:3]}:
        texts = (r.text for r in reading.line.redirects if r.kind == "text" and r.text)
        for head in (head for text in texts for head in _HEADER.findall(text)):
            yield from find_trusted_names(re.sub(r"(?<=\s)[ab]/", "", head), reading)


# ---- what find finds


def _describe_change_by_find(command: ShellCommand, reading: LineReading) -> str | None:
    """Return a clause about a trusted file among those that find changes."""
    words = [word.text for word in command.words]
    for option, value in pairwise(words):
        if option in ("-fprint", "-fprint0", "-fls", "-fprintf") and (
            found := _describe_protected_path_change("find", [value], reading)
        ):
            return found
    program = _program_changing_found_files(words)
    return (
        _describe_protected_path_change(program, _paths_matched_by_find(command, reading), reading)
        if program and command.literal
        else None
    )


def _program_changing_found_files(words: Sequence[str]) -> str:
    """Return the program that changes what find finds; empty: none does."""
    if "-delete" in words:
        return "rm"
    for at, word in enumerate(words):
        if word not in ("-exec", "-execdir", "-ok", "-okdir") or at + 1 == len(words):
            continue
        end = next((n for n in range(at, len(words)) if words[n] in (";", "+")), len(words))
        inner = words[at + 1 : end]
        program = canonical_program_name(inner[0]) if inner else ""
        if any("{}" in path for path in _written_or_removed_paths(program, [(text,) for text in inner[1:]])):
            return program
        if program in SHELLS and any(_can_script_write(text, inner) for text in inner[1:]):
            return "sh"
    return ""


def _can_script_write(script: str, command_words: Sequence[str]) -> bool:
    """Return whether a script writes to what it is given."""
    line = parse_shell_line(script)
    into = any(r.kind == "write" and r.target is not None and not r.is_without_file for r in line.redirects)
    programs = {canonical_program_name(c.words[0].text) for c in line.commands if c.words}
    return into or (
        not programs.isdisjoint(_ALL | _LAST | _REMOVE | _IN_PLACE.keys()) and len(command_words) > 1
    )


def _paths_matched_by_find(command: ShellCommand, reading: LineReading) -> Iterator[str]:
    """Yield the files that find finds by their names."""
    words = [word.text for word in command.words[1:]]
    if not _NARROWS.isdisjoint(words):
        return
    starts: list[str] = []
    for text in words:
        if text.startswith(("-", "(", "!")):
            break
        starts.append(text)
    wanted, unwanted = list[tuple[str, str]](), list[tuple[str, str]]()
    for at, (option, value) in enumerate(pairwise(words)):
        if option in ("-name", "-iname", "-path", "-ipath", "-wholename"):
            excludes = words[at - 1] in ("!", "-not") or "-prune" in words[at + 2 : at + 4]
            (unwanted if excludes else wanted).append((option, value))
    kinds = {value for option, value in pairwise(words) if option == "-type"}
    for base in reading.folders_or_root:
        for start in starts or ["."]:
            for path, is_folder in _walk_paths_below(str(reading.workspace.root / base), start):
                kind = "d" if is_folder else "f"
                if (kinds and kind not in kinds) or any(
                    _is_matched_by_find_option(path, *one) for one in unwanted
                ):
                    continue
                if not wanted or any(_is_matched_by_find_option(path, *one) for one in wanted):
                    yield path


def _paths_changed_by_fd(command: ShellCommand, reading: LineReading) -> Iterator[str]:
    """Yield the files that fd finds for a program that changes them."""
    words = list(command.argv[1:])
    at = next((n for n, word in enumerate(words) if word in ("-x", "-X", "--exec", "--exec-batch")), None)
    if at is None or _program_changing_found_files(["-exec", *words[at + 1 :], "{}"]) == "":
        return
    endings = [value for option, value in pairwise(words[:at]) if option in ("-e", "--extension")]
    operands = [word for word in words[:at] if not word.startswith("-") and word not in endings]
    for base in reading.folders_or_root:
        for path, _ in _walk_paths_below(str(reading.workspace.root / base), "."):
            name = posixpath.basename(path)
            fits = not operands or operands[0].strip(".^$*\\").casefold() in name.casefold()
            if fits and (not endings or name.endswith(tuple(endings))):
                yield path


def _is_matched_by_find_option(path: str, option: str, pattern: str) -> bool:
    text = path if option in ("-path", "-ipath", "-wholename") else posixpath.basename(path)
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())


def _walk_paths_below(root: str, start: str) -> Iterator[tuple[str, bool]]:
    """Yield the files and folders below a place, as find names them, up to a limit."""
    seen = 0
    top = os.path.join(root, start)  # noqa: PTH118 - texts of a line
    yield start, os.path.isdir(top)  # noqa: PTH112 - Path.is_dir raises for long names
    for folder, folders, files in os.walk(top):
        inner = start.rstrip("/") + folder[len(top.rstrip("/")) :]
        yield from ((f"{inner}/{name}", True) for name in folders)
        yield from ((f"{inner}/{name}", False) for name in files)
        folders[:] = [name for name in folders if name not in ("node_modules", "objects")]
        seen += len(folders) + len(files)
        if seen > _MOST_ENTRIES:
            return


def _describe_git_config_change(words: Sequence[str]) -> str | None:
    """Return a clause about a setting of git's that may run a program or lead elsewhere."""
    if "config" not in words:
        return None
    given = words[words.index("config") + 1 :]
    operands = [word for word in given if not word.startswith("-") and word not in _SETS]
    if not operands or not _LOOKS.isdisjoint(given) or (len(operands) == 1 and _SETS.isdisjoint(given)):
        return "opens git's configuration in an editor" if {"-e", "--edit", "edit"} & {*given} else None
    key = next((word for word in operands if "." in word and "/" not in word), operands[0])
    return None if is_harmless_git_key(key) else f"changes git's configuration ({key[:60]})"


def possible_redirection_paths(target: Word, reading: LineReading) -> Iterator[str]:
    """Yield the paths that a redirection may write to."""
    command = ShellCommand(target.text, (literal_word(">"), target))
    yield from _possible_values_and_trusted_names(target, command, reading)
