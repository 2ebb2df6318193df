# interlock: completion for bash. In ~/.bashrc: eval "$(interlock completion bash)"
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
