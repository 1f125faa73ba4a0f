#compdef ddplaunch
# Completion of ddplaunch for zsh. Load it with: source <(ddplaunch completion zsh)
_ddplaunch() {
    local line word
    local -a found
    for line in ${(f)"$(ddplaunch completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
        if [[ $line == :files ]]; then
            _files
        else
            word=${line%%$'\t'*}
            word=${word//:/\\:}
            found+=("$word:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe ddplaunch found
}
compdef _ddplaunch ddplaunch
