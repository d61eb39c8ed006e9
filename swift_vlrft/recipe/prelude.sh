# What bash runs before a script under `vlrft check --run` (restricted.py). @FD@ is the descriptor
# that takes the records; a value of \1 is what a program would have printed. Names begin with
# _vlrft_, so that they are none of the script's.
_vlrft_record() {
  local IFS=$' \t\n' _vlrft_r _vlrft_n
  builtin printf -v _vlrft_r '%s\036' "$@"
  _vlrft_r+=$'\035'
  for _vlrft_n in $(builtin compgen -e); do _vlrft_r+="$_vlrft_n=${!_vlrft_n-}"$'\036'; done
  builtin printf '%s\034' "$_vlrft_r" 1<&@FD@
}
command_not_found_handle() {
  local IFS=$' \t\n'
  case "$*" in
    "vlrft plugin") builtin printf '%s' "$_vlrft_plugin"; return ;;
    source*|.\ *|eval*|bash*|sh\ *|sbatch*|ssh\ *|xargs*|*.sh|*.sh\ *|*swift*|*megatron*|$'\1'*)
      _vlrft_record "${BASH_LINENO[*]}" "$@" ;;
  esac
  builtin printf '\1\n'
}
# A command whose name has a slash, which a restricted bash refuses, or comes from a variable.
_vlrft_run() { case ${1-} in */*) command_not_found_handle "$@" ;; *) "$@" ;; esac; }
cd() { _vlrft_record "${BASH_LINENO[*]}" cd "$@"; PWD=$'\1'; }
pushd() { cd "$@"; }
popd() { cd; }
pwd() { builtin printf '%s\n' "$PWD"; }
exec() { [ $# = 0 ] || { _vlrft_record "${BASH_LINENO[*]}" "$@"; exit; } }
command() { case ${1-} in -*) builtin printf '\1\n' ;; *) "$@" ;; esac; }
type() { builtin printf '\1\n'; }
nproc() { builtin printf '%s\n' "$_vlrft_cores"; }
basename() {
  case $#${1--} in *$'\1'*|[!12]*|?-*) builtin printf '\1\n'; return ;; esac
  local _vlrft_a=${1%/}
  _vlrft_a=${_vlrft_a##*/}
  builtin printf '%s\n' "${_vlrft_a%"${2-}"}"
}
dirname() {
  case $#${1--} in *$'\1'*|[!1]*|?-*) builtin printf '\1\n'; return ;; esac
  local _vlrft_a=${1%/}
  case $_vlrft_a in
    */*) _vlrft_a=${_vlrft_a%/*}; builtin printf '%s\n' "${_vlrft_a:-/}" ;;
    *) builtin printf '.\n' ;;
  esac
}
expr() {
  case "${1-}${3-}${5-}" in *[!-0-9]*) builtin printf '\1\n'; return ;; esac
  case "$#${2-}${4-}" in
    3[-+*/%]) builtin printf '%s\n' "$(($1 $2 $3))" ;;
    5//) builtin printf '%s\n' "$(($1 / $3 / $5))" ;;
    *) builtin printf '\1\n' ;;
  esac
}
seq() {
  local _vlrft_a=1 _vlrft_s=1 _vlrft_z _vlrft_b=$'\n' _vlrft_g=
  case ${1-} in -s) _vlrft_b=$2; shift 2 ;; -s*) _vlrft_b=${1#-s}; shift ;; esac
  case $# in
    1) _vlrft_z=$1 ;; 2) _vlrft_a=$1 _vlrft_z=$2 ;; 3) _vlrft_a=$1 _vlrft_s=$2 _vlrft_z=$3 ;;
    *) _vlrft_z=x ;;
  esac
  case "$_vlrft_a$_vlrft_s$_vlrft_z" in *[!-0-9]*|-) builtin printf '\1\n'; return ;; esac
  for ((; _vlrft_s > 0 ? _vlrft_a <= _vlrft_z : _vlrft_s < 0 && _vlrft_a >= _vlrft_z;
          _vlrft_a += _vlrft_s)); do
    builtin printf '%s%s' "$_vlrft_g" "$_vlrft_a"; _vlrft_g=$_vlrft_b
  done
}
: & # so that $! is set
HISTFILE=
readonly FUNCNEST=10 PATH HISTFILE HISTSIZE HISTFILESIZE _vlrft_plugin _vlrft_cores
readonly -f $(builtin compgen -A function)
