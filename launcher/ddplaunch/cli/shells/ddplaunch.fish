# Completion of ddplaunch for fish. Load it with: ddplaunch completion fish | source
function __ddplaunch
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (ddplaunch completion --words $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c ddplaunch -f -a '(__ddplaunch)'
