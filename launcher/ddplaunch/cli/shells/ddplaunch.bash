# Completion of ddplaunch for bash. Load it with: eval "$(ddplaunch completion bash)"
_ddplaunch() {
    local line=${COMP_LINE:0:COMP_POINT} word prefix=""
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local current=${words[-1]}
    # bash takes ":" for the end of a word, and handles hold one: only what stands behind it is replaced.
    [[ $COMP_WORDBREAKS == *:* && $current == *:* ]] && prefix=${current%"${current##*:}"}
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        if [[ $word == :files ]]; then
            compopt -o default
        else
            COMPREPLY+=("${word#"$prefix"}")
        fi
    done < <(ddplaunch completion --words "${words[@]:1}" 2>/dev/null)
}
complete -F _ddplaunch ddplaunch
