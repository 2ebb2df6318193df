"""readers: the options with which programs only read: none of them writes, runs a program, follows links or reads a
list of files from elsewhere."""

from dataclasses import dataclass
from typing import Literal

from interlock.services.shell.commands import Options
from interlock.services.shell.model import names


@dataclass(frozen=True, slots=True)
class Reader(Options):
    """The options that a program may have, and the kind of its operands."""

    operands: Literal["paths", "pattern", "lines", "text", "format", "none"] = "paths"
    """`pattern`: a pattern followed by paths; `lines`: which lines, as sed is told (`1,20p`), followed by paths;
    `format`: date's, `+%F`."""
    most: int = 1_000


GREP = Reader(
    "EFGPivwxcLlqsonHhbaIZr",
    "eABCm",
    "ignore-case invert-match word-regexp count files-with-matches line-number only-matching no-filename"
    " recursive include: exclude: exclude-dir: color= context= after-context: before-context: max-count:",
    operands="pattern",
)
READERS: dict[str, Reader] = {
    "ls": Reader(
        "1aAbcCdfFghHiklmnopqrRsStuUvxX", "", "all almost-all human-readable recursive reverse color="
    ),
    "cat": Reader("AbeEnstTuv", "", "number show-all"),
    "head": Reader("qv", "nc", "lines: bytes: quiet verbose", numbers=True),
    "tail": Reader("qv", "nc", "lines: bytes: quiet verbose", numbers=True),
    "wc": Reader("clmwL", "", "lines words bytes chars"),
    "nl": Reader("", "bnw"),
    "tac": Reader(),
    "rev": Reader(),
    "cut": Reader("sz", "dfbc", "delimiter: fields: characters:"),
    "sort": Reader("bdfghiMnRruVzcC", "kt", "reverse unique numeric-sort human-numeric-sort version-sort"),
    "uniq": Reader("cdiuz", "fsw", "count repeated", most=1),
    "diff": Reader("uqwbBiaycs", "U", "unified brief color=", most=2),
    "cmp": Reader("bls", most=2),
    "stat": Reader("Lt", "c", "format: printf:"),
    "file": Reader("bi", "", "brief mime-type"),
    "du": Reader("achksm", "d", "max-depth: human-readable summarize"),
    "basename": Reader("a", "s"),
    "dirname": Reader(),
    "realpath": Reader("em"),
    "readlink": Reader("fem"),
    "grep": GREP,
    "egrep": GREP,
    "fgrep": GREP,
    "rg": Reader(
        "incwlxFsSvoHINp0",
        "egtTABCmM",
        "files count files-with-matches ignore-case line-number no-heading heading fixed-strings word-regexp json"
        " multiline pcre2 stats trim glob: type: type-not: context: after-context: before-context: color: sort:"
        " max-count: max-depth:",
        operands="pattern",
    ),
    "sed": Reader("nE", operands="lines"),
    "uname": Reader("amnrsv", operands="none"),
    "nproc": Reader(operands="none"),
    "id": Reader("gGnru", operands="none"),
    "date": Reader("uR", "", "utc rfc-email", operands="format"),
    "paste": Reader("sz", "d"),
    "tr": Reader("cCdst", operands="text"),
    "tree": Reader("adfihsCDFprtv", "LIP", "dirsfirst noreport prune gitignore"),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "cksum"), Reader("bt")),
    "od": Reader("abcdovx", "AtNj"),
    "hexdump": Reader("Cvx", "ns"),
    "comm": Reader("123"),
    "column": Reader("t", "s"),
    "fold": Reader("s", "w"),
    "df": Reader("hTik"),
    "free": Reader("bkmgh", operands="none"),
    "uptime": Reader("ps", operands="none"),
    "hostname": Reader(operands="none"),
    "which": Reader("a", operands="text"),
    "pwd": Reader("LP", operands="none"),
    "whoami": Reader(operands="none"),
    "cd": Reader(most=1),
}
GIT: dict[str, Reader] = {
    "status": Reader(
        "sbz", "", "short branch porcelain porcelain= long show-stash untracked-files= no-renames"
    ),
    **dict.fromkeys(
        ("diff", "log", "show"),
        Reader(
            "pusiwbazrt",
            "nUSGL",
            "stat stat= shortstat numstat name-only name-status oneline graph decorate decorate= all cached staged"
            " patch no-patch unified= since= until= after= before= author= committer= grep= format= pretty pretty="
            " no-color color= no-merges merges first-parent follow reverse summary check date="
            " word-diff word-diff= max-count= abbrev-commit abbrev="
            " no-ext-diff no-textconv diff-filter= ignore-all-space ignore-space-change"
            " no-renames branches tags remotes merge-base raw left-right dirstat minimal patience histogram",
            numbers=True,
        ),
    ),
    "branch": Reader("arvl", "", "all remotes list show-current verbose merged no-merged", operands="none"),
    "tag": Reader("l", "", "list", operands="none"),
    "remote": Reader("v", "", "verbose", operands="none"),
    "stash": Reader(operands="text"),
    "rev-parse": Reader("", "", "abbrev-ref short show-toplevel git-dir is-inside-work-tree verify"),
    "ls-tree": Reader("rdtlz", "", "name-only full-tree long"),
    "merge-base": Reader("a", "", "all"),
    "rev-list": Reader("", "n", "count all no-merges merges first-parent", numbers=True),
    "reflog": Reader(operands="none", numbers=True),
    "worktree": Reader(operands="text"),
    "ls-files": Reader("cdmost", "", "cached deleted modified others exclude-standard stage full-name"),
    "blame": Reader("wsenl", "L", "porcelain date="),
    "describe": Reader("", "", "tags always dirty long all abbrev="),
    "shortlog": Reader("sne", "", "summary numbered email"),
}
FIND_FLAGS = names(
    "-print -print0 -ls -empty -not -o -or -a -and -prune -depth -mount -xdev ( ) ! -true -false"
)
FIND_VALUES = names(
    "-name -iname -printf -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -ctime -regex"
    " -iregex -perm -user -group"
)
