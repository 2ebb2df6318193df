# interlock: completion for fish. interlock completion fish > ~/.config/fish/completions/interlock.fish
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
