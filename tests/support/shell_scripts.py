"""Scripts of the kinds that people write, for bash and for our reader: name -> (script, unknown).

``unknown`` names what the reader may leave unknown: flags, variables, or ``*`` for anything.
@GRPO@ is a command without a fault; @WIDE@ is one for 8 processes, so that a process count that is
taken for its default is a problem. Files: data/{a,b}.jsonl, data/my set.jsonl, env.sh, args.txt.
"""

GRPO = (
    "swift rlhf --rlhf_type grpo --model m --dataset d --reward_funcs format"
    " --gradient_accumulation_steps 1 --num_generations 8 --per_device_train_batch_size"
)
TOKENS = {"@GRPO@": f"{GRPO} 8", "@WIDE@": f"{GRPO} 1"}

N = "NPROC_PER_NODE"
WIDE = "@WIDE@ --x 1\n"

REDIRECTED = (
    "1&>log",
    "1 &>>log",
    "1>log",
    "1 2>&1",
    "x1>log",
    "1>|log --y 1",
    "1>>log --y 1",
    "1 {fd}>log --y 1",
    "1 <<<x --y 1",
    "1>&2",
    "'1'>log",
    "1 3<>log --y 1",
    "1 2\\\n>log --y 1",
    "x \\\n1\\\n0>log \\\n>log --y 1",
    "1 2> >(cat > log)",
    "1&>log&",
)

SCRIPTS: dict[str, tuple[str, str]] = {
    # Values that only bash knows
    "count of lines": (f"export {N}=$(printf 'a\\n%.0s' 1 2 3 4 5 6 7 8 | wc -l)\n{WIDE}", N),
    "count of commas": (
        f"export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n"
        f"export {N}=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)\n{WIDE}",
        N,
    ),
    "backquotes": (f"export {N}=`echo 8`\n{WIDE}", N),
    "length of an array": (f"GPUS=(0 1 2 3 4 5 6 7)\nexport {N}=${{#GPUS[@]}}\n{WIDE}", ""),
    "split into an array": (
        f"GPUS=0,1,2,3,4,5,6,7\nIFS=',' read -ra A <<< \"$GPUS\"\nexport {N}=${{#A[@]}}\n{WIDE}",
        N,
    ),
    "arithmetic": (f"export {N}=$((4 * 2))\n{WIDE}", N),
    "sum": (f"A=7\nexport {N}=$((A + 1))\n{WIDE}", ""),
    "let": (f"export {N}=7\nlet {N}+=1\n{WIDE}", N),
    "let quoted": (f'export {N}=4\nlet "{N} = {N} * 2"\n{WIDE}', N),
    "double brackets": (f"export {N}=7\n(({N}++))\n{WIDE}", N),
    "assigned in an expansion": (f"export {N}=1\n: $(({N}=8))\n{WIDE}", N),
    "read": (f"export {N}\nread {N} <<< 8\n{WIDE}", N),
    "read from a pipe": (f"export {N}\nread -r {N} < <(echo 8)\n{WIDE}", N),
    "printf -v": (f"export {N}\nprintf -v {N} %d 8\n{WIDE}", N),
    "mapfile": ('mapfile -t A < args.txt\n@GRPO@ "${A[@]}"\n', "*"),
    "output": ("@GRPO@ --output_dir out/$(date +%s)\n", "output_dir"),
    "output by name": ("NOW=$(date +%s)\n@GRPO@ --output_dir=out/$NOW --y 1\n", "output_dir"),
    "flags of a file": ("@GRPO@ $(cat args.txt) --z 3\n", "*"),
    "flags of a file by name": ("A=$(cat args.txt)\n@GRPO@ $A --z 3\n", "*"),
    "substring": ("A=abcdef\n@GRPO@ --run ${A:0:3} --b ${A%def} --c ${A//b/x}\n", "run b c"),
    "case of letters": ("A=abc\n@GRPO@ --a ${A^^} --b ${A@Q}\n", "a b"),
    "indirect": ("A=B\nB=c\n@GRPO@ --a ${!A}\n", "a"),
    "nameref": ("declare -n R=A\nA=1\nR=2\n@GRPO@ --a $A\n", "*"),
    "item by item": ("A[0]=x\nA[1]=y\n@GRPO@ --a ${A[1]}\n", "a"),
    "integer": (f"declare -ix {N}=4+4\n{WIDE}", N),
    "random": ("@GRPO@ --seed $RANDOM --host $HOSTNAME --u $UID\n", "seed host u"),
    "process id": ("@GRPO@ --run r$$ --l $?\n", "run l"),
    "the own IFS": ("IFS=:\nA=a:b\n@GRPO@ --a $A\n", "a"),
    "date in a folder": (
        'OUT="out/$(date +%F)"\nmkdir -p "$OUT"\n@GRPO@ --output_dir "$OUT"\n',
        "output_dir",
    ),
    # Conditions
    "if": (f'export {N}=8\nif [ -n "$DEBUG" ]; then export {N}=1; fi\n{WIDE}', N),
    "if that runs": (f"export {N}=1\nif true; then {N}=8; fi\n{WIDE}", N),
    "both ways agree": (f"if [ -d x ]; then export {N}=8; else export {N}=8; fi\n{WIDE}", ""),
    "both ways differ": ("if [ -d x ]; then M=a; else M=b; fi\n@GRPO@ --m $M\n", "m"),
    "elif": ("if [ -d x ]; then M=a; elif [ -d y ]; then M=b; fi\n@GRPO@ --m ${M:-c}\n", "m"),
    "and": (f'export {N}=8\n[ "$DEBUG" = 1 ] && export {N}=1\n{WIDE}', N),
    "and that runs": (f"export {N}=1\n[ -d data ] && export {N}=8\n{WIDE}", N),
    "and of pixels": (
        'export MAX_PIXELS=1\n[ "${DEBUG:-0}" = 1 ] && export MAX_PIXELS=2\n@GRPO@\n',
        "MAX_PIXELS",
    ),
    "or": (f'test -n "${N}" || export {N}=8\n{WIDE}', N),
    "double test": (f"[[ -z ${N} ]] && {{ export {N}=8; }}\n{WIDE}", N),
    "arithmetic test": ("N=3\n(( N > 2 )) && M=a || M=b\n@GRPO@ --m $M\n", "m"),
    "certain and": (f"export A=1 && export {N}=8\n{WIDE}", ""),
    "case": ("case $(uname) in Linux) M=a;; *) M=b;; esac\n@GRPO@ --m $M\n", "m"),
    "case with a default before": (
        f'export {N}=8\ncase "$1" in\n  --small|-s) {N}=1 ;;\n  (b*) : ;;\nesac\n{WIDE}',
        N,
    ),
    "for": ("A=0\nfor i in 1 2 3; do A=$i; done\n@GRPO@ --a $A\n", "a"),
    "for of nothing": ("A=0\nfor i in; do A=$i; done\n@GRPO@ --a $A\n", "a"),
    "for in numbers": ("for ((i=0;i<3;i++)); do A=$i; done\n@GRPO@ --a $A --i $i\n", "a i"),
    "while": ("A=0\nwhile [ $A -lt 3 ]; do A=$((A+1)); done\n@GRPO@ --a $A\n", "a"),
    "until": ("A=0\nB=x\nuntil [ $A -ge 3 ]; do B=$A; A=$((A+1)); done\n@GRPO@ --b $B\n", "b"),
    "while read": ('while read -r k; do export "$k"; done < env.sh\n@GRPO@ --a 1\n', "*"),
    "loop of commands": ("for lr in 1e-6 2e-6; do @GRPO@ --lr $lr; done\n", "lr"),
    "loop that changes itself": (
        "A=a\nB=b\nfor i in 1 2 3; do @GRPO@ --a $A --b $B; B=$A; A=z; done\n",
        "a b",
    ),
    "break": ("A=1\nfor i in 1 2; do A=2; break; A=3; done\n@GRPO@ --a $A\n", "a"),
    "exit in a condition": ("[ -d data ] || { echo no; exit 1; }\nexport A=1\n@GRPO@ --a $A\n", ""),
    "usage": ("if [ $# -gt 9 ]; then echo usage; exit 1; fi\n@GRPO@ --a 1\n", ""),
    "exit in both": (
        "if [ -d data ]; then @GRPO@ --a 1; exit; else exit 1; fi\n@GRPO@ --b 1\n",
        "",
    ),
    "after exit": ("@GRPO@ --a 1\nexit 0\nswift rlhf --broken 1\n", ""),
    "after exec": ("exec @GRPO@ --a 1\nswift rlhf --broken 1\n", ""),
    "exec of a redirection": ("exec 3>&1 > log 2>&1\n@GRPO@ --a 1\n", ""),
    "subshell": (f"export {N}=8\n( export {N}=1; cd / )\n{WIDE}", ""),
    "command in a subshell": (f"( export {N}=8; {WIDE} )\n@GRPO@ --y 2\n", ""),
    "exit in a subshell": ("( exit 3 )\n@GRPO@ --a 1\n", ""),
    "pipe keeps its variables": ("A=1\necho 2 | read A\n@GRPO@ --a $A\n", ""),
    "background keeps its variables": ("A=1\nA=2 &\nwait\n@GRPO@ --a $A\n", ""),
    "optional flags": (
        'ARGS=(--a 1)\nif [ -n "$RESUME" ]; then ARGS+=(--resume_from_checkpoint "$RESUME"); fi\n'
        '@GRPO@ --z 3 "${ARGS[@]}"\n',
        "a resume_from_checkpoint",
    ),
    "optional text": (
        '[ -n "$R" ] && EXTRA="--model r --beta 0"\n@GRPO@ $EXTRA --z 3\n',
        "model beta",
    ),
    "options by hand": (
        "M=a\nwhile [[ $# -gt 0 ]]; do case $1 in --m) M=$2; shift 2;; *) shift;; esac; done\n"
        "@GRPO@ --m $M\n",
        "m",
    ),
    "getopts": (
        'M=a\nwhile getopts "m:" o; do case $o in m) M=$OPTARG;; esac; done\n@GRPO@ --m $M\n',
        "m",
    ),
    # Not set, and no fault
    "not set in a test": (
        'if [ -z "$WANDB_PROJECT" ]; then echo no tracking; fi\n@GRPO@ --a 1\n',
        "",
    ),
    "empty default": ('@GRPO@ --a "${NONE:-}" ${NONE:+--b 1} --c ${NONE-c}\n', ""),
    "echo of nothing": ('echo "on $SLURM_JOB_ID $NONE"\n@GRPO@ --a 1\n', ""),
    "optional and not set": ("@GRPO@ --a 1 $EXTRA_ARGS\n", ""),
    "default in a test": ('[ -n "${A:=7}" ]\n@GRPO@ --a $A\n', ""),
    "strict": ('set -euo pipefail\nA=${NONE:-x}\n@GRPO@ --a "$A" "$@"\n', ""),
    # Functions
    "local": ("run() { local lr=$1; @GRPO@ --lr $lr; }\nrun 1e-6\nrun 2e-6\n", ""),
    "function keyword": ("function f { @GRPO@ --a $1 --n $# --all $*; }\nf 1 2\n", ""),
    "two words": ('f() { @GRPO@ --a "$1" "${@:2}"; }\nf "x y" --b 2\n', "*"),
    "all arguments": ('f() { echo "+ $*"; "$@"; }\nf @GRPO@ --a 1\n', ""),
    "argument left out": ('f() { local a=$1 b=${2:-two}; @GRPO@ --a "$a" --b $b; }\nf\n', ""),
    "function of unknown arguments": ("f() { @GRPO@ --a $1; }\nf $(echo 3)\n", "a"),
    "function that sets": (f"setup() {{ export {N}=8; }}\nsetup\n{WIDE}", ""),
    "function that sets in a condition": (
        f'export {N}=8\nsmall() {{ export {N}=1; }}\n[ -n "$S" ] && small\n{WIDE}',
        N,
    ),
    "function of one branch or another": (
        f"export {N}=8\nif [ -d data ]; then f() {{ A=1; }}; else f() {{ A=2; }}; fi\nf\n"
        "@WIDE@ --a $A\n",
        "a",
    ),
    "function of one branch, with no loop": (
        f'[ -d data ] && swift() {{ command swift "$@" --b 1; }}\nexport {N}=8\n{WIDE}',
        "b",
    ),
    "local of an exported one": ("export A\nf() { local A=5; @GRPO@ --a $A; }\nf\n", ""),
    "local is local": ("A=1\nf() { local A=2; B=$A; }\nf\n@GRPO@ --a $A --b $B\n", ""),
    "return": ("f() { A=1; return 0; A=2; }\nf\n@GRPO@ --a $A\n", ""),
    "return in a condition": ("f() { [ -d x ] && return; A=1; }\nA=1\nf\n@GRPO@ --a $A\n", ""),
    "never called": ("f() { swift rlhf --broken 1; }\n@GRPO@ --a 1\n", ""),
    "shift": ("set -- a b c\nshift\n@GRPO@ --a $1 --n $#\n", ""),
    "main": (
        'main() {\n  local n=${1:-8}\n  export NPROC_PER_NODE=$n\n  @WIDE@ --x 1\n}\nmain "$@"\n',
        "",
    ),
    "calls itself": ("f() { [ -d x ] && f; }\nf\n@GRPO@ --a 1\n", "*"),
    # The environment of each command
    "for one command": ("MAX_PIXELS=401408 @GRPO@ --a 1\nswift infer --b 2\n", ""),
    "rollout and training": (
        "CUDA_VISIBLE_DEVICES=0 MAX_PIXELS=1 swift rollout --model m &\nwait\n"
        "CUDA_VISIBLE_DEVICES=1 MAX_PIXELS=1 @GRPO@ --a 1\n",
        "",
    ),
    "set -a": ("set -a; source ./env.sh; set +a; OWN=1\n@GRPO@ --a $FROM_ENV\n", ""),
    "sourced without -a": ("source ./env.sh\n@GRPO@ --a $FROM_ENV\n", ""),
    "export of a file": ("export $(grep -v '^#' env.sh | xargs)\n@GRPO@ --a 1\n", "*"),
    "set -o": (f"set -o allexport\n{N}=8\nset +o allexport\n{WIDE}", ""),
    "declare -x": (f"declare -x {N}=8 B=2\ntypeset -x C=3\n{WIDE}", ""),
    "declare": ("declare A=1\nreadonly B=2\n@GRPO@ --a $A$B\n", ""),
    "exported later": (f"{N}=8\nswift infer --a 1\nexport {N}\n{WIDE}", ""),
    "exported before": (f"export {N}\n{N}=8\n{WIDE}", ""),
    "export quoted": (f"export \"{N}=8\" 'B=b c'\n{WIDE}", ""),
    "export -n": ("export A=1 B=2\nexport -n A\n@GRPO@ --a $A\n", ""),
    "declare +x": ("export A=1\ndeclare +x A\n@GRPO@ --a $A\n", ""),
    "unset": ("export A=1 B=2\nunset A\nunset -v B\n@GRPO@ --a ${A:-none}\n", ""),
    "unset a given one": ("unset GIVEN\n@GRPO@ --a ${GIVEN-none}\n", ""),
    "env": (f"env {N}=8 B='b c' {WIDE}", ""),
    "env -u": ("export A=1\nenv -u A -u GIVEN B=2 @GRPO@ --a 1\n", ""),
    "env --unset": ("export A=1\nenv --unset=A @GRPO@ --a 1\n", ""),
    "env -i": ('export A=1\nenv -i PATH="$PATH" SEEN="$SEEN" B=2 @GRPO@ --a 1\n', ""),
    "prefix of a function": (f"f() {{ {WIDE} }}\n{N}=8 f\n", ""),
    "prefix sees the one before": ("A=1 B=$A @GRPO@ --b x\n", ""),
    "old value in the words": ("A=1\nA=2 @GRPO@ --a $A\n@GRPO@ --a $A\n", ""),
    "sourced and exported": (f"export {N}=1\n. ./env.sh\n{WIDE}", ""),
    # Words
    "default of several words": (
        '@GRPO@ --system ${SYS:-"You are a helpful assistant"} --a 1\n',
        "",
    ),
    "default without quotes": ('@GRPO@ --a ${X:-1 2  3} --b "${X:-1 2}"\n', ""),
    "default in a default": ('@GRPO@ --a "${X:-${Y:-$GIVEN}}" --b ${X:-${Y:-"p q"} r}\n', ""),
    "default with quotes in quotes": (
        '@GRPO@ --a "${X:-"p q"}" --b "${X:-\'r s\'}" --c ${X:-\'p q\'}\n',
        "",
    ),
    "not of ASCII": ("# \u00fc\nA='\u00e9 \u4e2d'\n@GRPO@ --a \u4e2d --b \"$A\" --c $A\n", ""),
    "backslash at the end of the file": ("@GRPO@ --a 1 \\", ""),
    "here-document that is written to a file": ("cat <<E>f\nx\nE\n@GRPO@ --a <(x) --b 1\n", "a"),
    "case that falls through": (
        "case 1 in 1) A=1;;& *) B=2;& x) C=3;; esac\n@GRPO@ --a $A --b $B --c $C\n",
        "*",
    ),
    "json default": ('@GRPO@ --a "${X:-{\\"image\\": 2}}" --b ${X:-\'{"b": 1}\'}\n', ""),
    "address default": ("@GRPO@ --a ${X:-http://h:1/p?a=b&c=d;e}\n", ""),
    "glob": ("@GRPO@ --val_dataset ./data/?.jsonl --eval_strategy no\n", "val_dataset"),
    "star": ("@GRPO@ --files data/*.jsonl --none none/*.x --z [1,2]\n", "files"),
    "star with a blank": ('@GRPO@ --files "data/my"*.jsonl data/[!a]*.jsonl\n', "files"),
    "star in quotes": ("@GRPO@ --a '*' --b \"data/*\" --c \\*\n", ""),
    "star of a variable": (
        'D=data\nP="*.jsonl"\n@GRPO@ --files $D/$P --one "$D/$P"\n',
        "files",
    ),
    "star without globs": ("set -f\n@GRPO@ --files data/*.jsonl --b none/*\n", "files"),
    "star of nothing": ("shopt -s nullglob\n@GRPO@ --a 1 none/*.x\n", "a"),
    "braces": (
        "@GRPO@ --a $PWD/data/{a,b}.jsonl --n {1..3} x{01..03} --one x{a} 'x{a,b}'\n",
        "a n",
    ),
    "nested braces": ("@GRPO@ --n a{b,c{d,e}}f {a,b}{1,2} --o {z..x} --p {,x}y\n", "n o p"),
    "braces with quotes": ('A=1\n@GRPO@ --n {"x y",$A} --j x{"a":1} --k x{a,b\n', "n"),
    "ansi quotes": ("@GRPO@ --a $'x\\ty\\'z\\n' --b $\"loc\"\n", "a"),
    "home": (
        'HOME=/h\n@GRPO@ --a ~/x --b ~ --c "~/x" --d=~/x --e x~\nP=~/y:~/z\n@GRPO@ --p $P\n',
        "",
    ),
    "quotes side by side": ('A=\'x y\'\n@GRPO@ --a p"$A"\'q r\'\\ s --b $A"z" --c ""$A\n', ""),
    "splitting at the edge": ("A=' x y '\n@GRPO@ --a p$A$A\"q\" --b $A\n", ""),
    "array": (
        "A=(\n  --a 1  # why\n  # --b 2\n  --c 'x y'\n)\n@GRPO@ \"${A[@]}\" --n ${#A[@]}\n",
        "",
    ),
    "array grown": ('A=(--a 1)\nA+=(--b 2 --c)\n@GRPO@ "${A[@]}" x ${A[1]} "${A[*]}"\n', ""),
    "array without quotes": ("A=(--a 'x y')\n@GRPO@ ${A[@]} ${A[0]}s 1\n", ""),
    "array in a word": ('A=(1 2 3)\n@GRPO@ --a p"${A[@]}"q --b ${NONE[@]} --c 1\n', ""),
    "array with output": (
        'A=(--output_dir "o/$(date +%s)" --z 1)\n@GRPO@ "${A[@]}"\n',
        "output_dir",
    ),
    "associative": ("declare -A M=([a]=1 [b]=2)\n@GRPO@ --a ${M[a]} --b ${#M[@]}\n", "a b"),
    "comment in a command": ("@GRPO@ --a 1 # --b 2 \\\n", ""),
    "hash in a word": ("@GRPO@ --a x#y '#z' \\#q\n", ""),
    "continued words": ('@GRPO@ --a x\\\ny --b "p\\\nq" \\\n   --c 1\\\n  \n', ""),
    "continued with a blank line": ("@GRPO@ --a 1 \\\n\necho done\n", ""),
    "here-document": (
        'cat > conf.json <<EOF\n{"a": "$GIVEN", swift rlhf\n}\nEOF\n@GRPO@ --a conf.json\n',
        "",
    ),
    "here-document with a pipe": (
        "cat <<'EOF' | cat > f && A=1\nswift rlhf \"\nEOF\n@GRPO@ --a 1\n",
        "",
    ),
    "here-document with tabs": ("cat <<-EOF >/dev/null\n\tx\n\tEOF\n@GRPO@ --a 1\n", ""),
    "two here-documents": ("cat <<A <<B >/dev/null\nx\nA\nswift rlhf y\nB\n@GRPO@ --a 1\n", ""),
    "here-string": ("@GRPO@ --a 1 <<< 'x y' --b 2\n", ""),
    "redirections between": ("@GRPO@ --a 1 2>&1 --b 2 > log --c 3 2>>err\n", ""),
    "json": ('N=2\n@GRPO@ --k \'{"image": 2}\' --l "{\\"a\\": $N}" --m {\\"a\\":1}\n', ""),
    "equals": ("M='a b'\n@GRPO@ --a=1 --b=\"$M\" --c='x y' --d=\n", ""),
    "dashes": ("@GRPO@ --learning-rate 1e-6 --top_k -1 --y -x\n", ""),
    "positional": ('@GRPO@ --a "$1" "${2}" --n $#\n', "a"),
    "dollar alone": ("@GRPO@ --a $ --b 5$ --c \"$\" --d '$A'\n", ""),
    "continued prefix": ("A=1 \\\nB='x y' \\\n  @GRPO@ \\\n  --a 1 \\\n  --b 2\n", ""),
    # Wrappers
    "uv": ("uv run --no-sync --python 3.11 @GRPO@ --a 1\n", ""),
    "nice": ("nice -n 10 ionice -c 2 @GRPO@ --a 1\n", ""),
    "timeout": ("timeout -k 10 3600 @GRPO@ --a 1\ntimeout --signal=KILL 1h @GRPO@ --b 1\n", ""),
    "srun": ("srun -N 1 --gres=gpu:8 -p part @GRPO@ --a 1\n", ""),
    "srun of a shell": ("export A=1\nsrun bash -c '@GRPO@ --a $A --b $0'\n", "b"),
    "nohup": ("nohup @GRPO@ --a 1 > log 2>&1 &\nwait\n", ""),
    "stdbuf": ("stdbuf -oL -e L @GRPO@ --a 1 2>&1 | tee log\n", ""),
    "accelerate": (
        "accelerate launch --num_processes 8 --config_file c.yaml swift/cli/rlhf.py"
        " --rlhf_type grpo --model m --dataset d --reward_funcs format\n",
        "",
    ),
    "torchrun": (
        "NNODES=1 torchrun --nproc_per_node=8 --nnodes 1 swift/cli/rlhf.py"
        " --rlhf_type grpo --model m --dataset d --reward_funcs format"
        " --per_device_train_batch_size 1 --gradient_accumulation_steps 1"
        " --num_generations 8\n",
        "",
    ),
    "torchrun of a module": (
        "torchrun --nproc_per_node $(echo 8) -m swift.cli.rlhf --model m"
        " --dataset d --rlhf_type grpo --reward_funcs format"
        " --per_device_train_batch_size 1 --num_generations 8\n",
        "",
    ),
    "module": ("python -m swift.cli.rlhf --model m --dataset d --rlhf_type dpo\n", ""),
    "file": ("python -u swift/cli/sft.py --model m --dataset d\n", ""),
    "conda": ("conda run -n swift --no-capture-output @GRPO@ --a 1\n", ""),
    "poetry": ("poetry run @GRPO@ --a 1\npixi run -e gpu @GRPO@ --b 1\n", ""),
    "xvfb": ("xvfb-run -a @GRPO@ --a 1\n", ""),
    "sudo": ("export A=1\nsudo -E @GRPO@ --a 1\n", ""),
    "sudo with variables": (f"sudo -E {N}=8 {WIDE}", ""),
    "time": ("time @GRPO@ --a 1\ntime -p @GRPO@ --b 1\n", ""),
    "not": ("! @GRPO@ --a 1 || exit 1\n", ""),
    "process substitution": ("@GRPO@ --a 1 2> >(cat > err) > >(cat)\n", ""),
    "read from a process": ("@GRPO@ --a <(echo 1) --b 2\n", "a"),
    "eval": ('CMD="@GRPO@ --a 1"\neval $CMD\neval "$CMD --b \'x y\'"\n', ""),
    "eval that sets": (f"eval 'export {N}=8'\n{WIDE}", ""),
    "bash -c": ('A=1\nexport B=2\nbash -c "@GRPO@ --a $A --b \\$B --c \\${A:-no}"\n', ""),
    "bash -lc": ("nohup bash -ec '@GRPO@ --a \"$1\"' name 'x y' > log &\nwait\n", ""),
    "numbers and redirections": (
        "".join(f"@GRPO@ --id {i} --beta {end}\n" for i, end in enumerate(REDIRECTED)) + "wait\n",
        "",
    ),
    "document in the middle": (
        "@GRPO@ --beta <<EOF 1 --y 2\nswift rlhf --no 1\nEOF\n"
        "@GRPO@ --beta 2 {fd}<<E --z 3\n)\nE\n@GRPO@ --beta 4<<-'E' 1\n\t$(\n\tE\n",
        "",
    ),
    "remark between lines": ("@GRPO@ \\\n  --a 1 `# why` \\\n  --b 2 $(# why\n) --c 3\n", ""),
    "resumed": (
        'if [ -n "$RESUME" ]; then EXTRA="$EXTRA --resume $RESUME"; fi\n@GRPO@ --a 1 $EXTRA\n',
        "resume",
    ),
    "resumed by and": (
        '[[ $RESUME ]] && EXTRA="--resume $RESUME"\n@GRPO@ --a 1 $EXTRA\n',
        "resume",
    ),
    "resumed, with no loop": (
        'case "$RESUME" in\n  "") ;;\n  *) exec swift sft --model $RESUME --dataset d ;;\nesac\n'
        "test -z ${RESUME} || @GRPO@ --resume ${RESUME}\n@GRPO@ --a 1  # loop\n",
        "*",
    ),
    "configuration that it writes": (
        "echo rlhf_type: grpo > made.yaml\nswift rlhf made.yaml --a 1\n",
        "*",
    ),
    "command by name": ("SWIFT=swift\n$SWIFT rlhf --model m --dataset d --rlhf_type dpo\n", ""),
    "all of it by name": ('CMD="@GRPO@ --a 1"\n$CMD --b 2\n', ""),
    "command as an array": ('CMD=(@GRPO@ --a "x y")\necho "${CMD[@]}"\n"${CMD[@]}"\n', ""),
    "path": ("./bin/swift rlhf --model m --dataset d --rlhf_type dpo\n", ""),
    "command": ("command @GRPO@ --a 1\n", ""),
    "in a substitution": ("OUT=$(@GRPO@ --a 1)\necho $OUT\n", ""),
    "in a condition": ("if @GRPO@ --a 1; then echo done; fi\n", ""),
    "group": ("{ @GRPO@ --a 1; @GRPO@ --b 2; } 2>&1 | tee log\n", ""),
    "semicolons": (
        "cd data; @GRPO@ --files *.jsonl; cd ..; @GRPO@ --files data/b.* --none *.jsonl\n",
        "files",
    ),
    "folder of the script": (
        'cd "$(dirname "$0")"\nHERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        '@GRPO@ --files data/a.* --here $HERE --name $(basename "$0")\n',
        "files",
    ),
    "unknown folder": (
        "cd $(mktemp -d)\n@GRPO@ --model ./there --dataset ./x/*.jsonl\n",
        "dataset",
    ),
    "trap": ("trap 'kill 0' EXIT INT\ntrap - EXIT INT\n@GRPO@ --a 1\n", ""),
    "options of the shell": (
        "#!/bin/bash\nset -x\nset +e\nulimit -n 99\numask 022\n@GRPO@ --a 1\n",
        "",
    ),
    "configuration": ("swift rlhf conf.yaml --a 1\n", ""),
}
