"""completion: prints the script that completes `interlock …` in a shell. What it offers: `cli/completing.py`."""

from interlock.cli.parsing import Parser, one_of

_BASH = r"""# interlock: completion for bash. In ~/.bashrc: eval "$(interlock completion bash)"
_interlock() {
    local line kind="" before="" IFS=$'\n'
    COMPREPLY=()
    while read -r line; do
        if [[ -z $kind ]]; then kind=${line%%$'\t'*} before=${line#*$'\t'}; else COMPREPLY+=("$line"); fi
    done < <("${1/#\~/$HOME}" __complete bash "$COMP_TYPE" "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case $kind in
        files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -P "$before" -- "${2#"$before"}")) ;;
        dirs) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -P "$before" -- "${2#"$before"}")) ;;
        *) [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace 2>/dev/null ;;
    esac
    return 0
}
complete -o nosort -F _interlock interlock 2>/dev/null || complete -F _interlock interlock
"""
_ZSH = r"""#compdef interlock
# interlock: completion for zsh. In ~/.zshrc, after compinit: eval "$(interlock completion zsh)"
_interlock() {
    local -a lines shown head
    local line
    lines=("${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    head=("${(@ps:\t:)lines[1]}")
    [[ -n $head[2] ]] && compset -p ${#head[2]}
    case $head[1] in
        files) _files ;;
        dirs) _files -/ ;;
        *)
            for line in "${(@)lines[2,-1]}"; do
                shown+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
            done
            _describe -V interlock shown ;;
    esac
}
if [[ $funcstack[1] == _interlock ]]; then _interlock "$@"; else compdef _interlock interlock; fi
"""
_FISH = r"""# interlock: completion for fish. interlock completion fish > ~/.config/fish/completions/interlock.fish
function __interlock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -l lines ($program __complete fish $words[2..-1] "$current" 2>/dev/null)
    set -l head (string split \t -- $lines[1])
    set -l path (string sub -s (math (string length -- "$head[2]") + 1) -- "$current")
    switch "$head[1]"
        case files
            for found in (complete -C "'' $path")
                echo "$head[2]$found"
            end
        case dirs
            for found in (__fish_complete_directories "$path" '')
                echo "$head[2]$found"
            end
        case words
            printf '%s\n' $lines[2..-1]
    end
end
complete -c interlock -f -k -a '(__interlock_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def parser() -> Parser:
    made = Parser(
        "completion",
        "bash|zsh|fish",
        "Print the script that completes commands, flags, runs, workflows and files at TAB.",
        [
            ('eval "$(interlock completion bash)"', "in ~/.bashrc"),
            ('eval "$(interlock completion zsh)"', "in ~/.zshrc, after compinit"),
            ("interlock completion fish > ~/.config/fish/completions/interlock.fish", "once"),
        ],
    )
    made.add_argument("shell", metavar="bash|zsh|fish", type=one_of(list(_SCRIPTS)), help="your shell")
    return made


def execute(arguments: list[str]) -> int:
    print(_SCRIPTS[parser().parse(arguments).shell], end="")
    return 0
