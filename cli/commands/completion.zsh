#compdef interlock
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
