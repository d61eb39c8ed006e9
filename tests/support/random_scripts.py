"""Random bash programs that end in `swift` commands, each with a number of its own (``--id``)."""

import random

NAMES = ("A", "B", "C", "D")
WORDS = (
    r"""
1; x; 'p q'; "$V"; $V; ${V}y; "${V:-d e}"; ${V:-d}; ${V-z}; ${V:+s}; $(echo k); $((1+2)); a{1,2}
~/q; $1; "$@"; $#; *.none; "a\"b"; \$; $'t'; ${#V}; ${V:=w}; `echo l`; ""; ${V%x}; ${R[@]}
"${R[@]}"; ${R[1]}; "${R[*]}"; ${#R[@]}
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
TESTS = (
    '[ -n "$V" ]',
    '[ -z "$V" ]',
    "true",
    "false",
    "[[ $V == 1 ]]",
    "(( 1 > 0 ))",
    "! true",
    "[ -d / ]",
)
ODD = (
    "unset V",
    "set -a",
    "set +a",
    "set -- p 'q r'",
    "shift",
    "export -n V",
    ": ${V:=g}",
    "let A=3",
    "((B=2))",
    "read C <<< 'u v'",
    "printf -v D %s 5",
    "eval 'A=7'",
    'eval "B=x$#"',
    "export V",
    "declare V",
    "[ -d /nope ] && exit",
)


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0

    def pick(self, *choices):
        return self.random.choice(choices).replace("V", self.random.choice(NAMES))

    def word(self):
        return self.pick(*WORDS)

    def words(self, most):
        return " ".join(self.word() for _ in range(self.random.randint(0, most)))

    def assignment(self):
        return f"{self.pick('V')}{self.pick('=', '=', '+=')}{self.word()}"

    def swift(self):
        self.count += 1
        before = self.pick("", "", "", "A=9 ", "B=$A C=$B ", "env D=4 ", "env -u A ", "nohup ")
        flags = " ".join(f"--{flag} {self.words(2)}" for flag in self.random.sample("pqrst", 3))
        return f"{before}swift rlhf --id {self.count} {flags}{self.pick('', ' | cat', ' 2>&1')}"

    def body(self, depth):
        return "; ".join(self.statement(depth + 1) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth=0):
        chance = self.random.random()
        if chance < 0.3:
            return self.assignment()
        if chance < 0.4:
            return f"{self.pick('export', 'declare', 'declare -x')} {self.pick('V')}={self.word()}"
        if chance < 0.5:
            return f"R{self.pick('=', '+=')}({self.words(3)})"
        if chance < 0.6:
            return self.pick(*ODD)
        if depth > 2:
            return self.swift()
        if chance < 0.7:
            return f"{self.pick(*TESTS)} {self.pick('&&', '||')} {self.statement(depth + 1)}"
        test, one, two = self.pick(*TESTS), self.body(depth), self.body(depth)
        if chance < 0.78:
            return f"if {test}; then {one}; elif {self.pick(*TESTS)}; then {two}; fi"
        if chance < 0.82:
            return f"if {test}; then {one}; else {two}; fi"
        if chance < 0.85:
            return f"for A in 1 2; do {one}; done"
        if chance < 0.88:
            return f"case {self.pick('$V')} in 1) {one};; x|y) {two};; *) :;; esac"
        if chance < 0.92:
            return self.random.choice((f"( {one} )", f"{{ {one}; }}"))
        if chance < 0.98:
            own = self.pick("", "local A=5; ", "local B; ", "local -x C=3; ")
            name = self.pick("f", "g")
            return f"{name}() {{ {own}{one}; }}; {name} {self.pick('', '1', '$A z')}"
        return self.swift()


def script(seed):
    writer = Writer(seed)
    lines = [writer.statement() for _ in range(writer.random.randint(2, 8))]
    return "\n".join([*lines, writer.swift()]) + "\n"
