"""The scripts by which shells ask what a word can become: zsh and fish quote the answers, bash gets them quoted."""

SCRIPTS = {
    "bash": """
_onnxdbg_completion() {
    local IFS=$'\\n'
    read -r -d '' -a COMPREPLY < <(
        _ONNXDBG_COMPLETE=bash _ONNXDBG_LINE="${COMP_LINE:0:COMP_POINT}" _ONNXDBG_WORD="$2" "$1"
    )
    return 0
}

complete -o default -F _onnxdbg_completion onnxdbg
""",
    "zsh": """
#compdef onnxdbg

_onnxdbg_completion() {
  local line="${(j: :)words[1,CURRENT-1]} ${IPREFIX}${QIPREFIX}${PREFIX}"
  local answer="$(_ONNXDBG_COMPLETE=zsh _ONNXDBG_LINE="$line" onnxdbg)"
  [[ -n "$answer" ]] || { _files; return }
  local -a found=("${(@f)answer}")
  local -a names=("${found[@]%%%%$'\\t'*}") shown=("${found[@]/$'\\t'/  -- }")
  compadd -l -d shown -a names
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _onnxdbg_completion "$@"
else
  compdef _onnxdbg_completion onnxdbg
fi
""",
    "fish": """
function __onnxdbg_complete
    set -l line (commandline -cp | string collect)
    set -l found (env _ONNXDBG_COMPLETE=fish _ONNXDBG_LINE="$line" onnxdbg)
    if set -q found[1]
        printf '%%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command onnxdbg --no-files --arguments '(__onnxdbg_complete)'
""",
}
