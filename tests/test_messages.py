"""messages.txt holds the wording of all that the package says: errors, findings, help, notes.

Other tests ask for a rule, a place or a number. A changed sentence shows here, once; when it is as
it should be, `python tests/test_messages.py` writes the file anew.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "swift_vlrft"
SNAPSHOT = Path(__file__).parent / "messages.txt"
CODE = re.compile(r"\(\?|\\[swdb]|^\s*(SELECT|import|def) ")


def template(node: ast.AST) -> str:
    """The text of a literal, with {} for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def sentences(node: ast.AST) -> Iterator[str]:
    """What is said below this node: four words or more, no docstring, no pattern."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    text = template(node)
    if len(re.findall(r"[A-Za-z]{2,}", text)) >= 4 and " " in text and not CODE.search(text):
        yield text
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from sentences(child)


def everything_said() -> str:
    """A heading for each file; below it its sentences, in their order."""
    lines = []
    for path in sorted(PACKAGE.rglob("*.py")):
        texts = list(sentences(ast.parse(path.read_text())))
        if texts:
            lines += ["", path.relative_to(PACKAGE).as_posix()]
            lines += ["    " + text.replace("\n", "\\n") for text in texts]
    return "\n".join(lines[1:]) + "\n"


def test_the_wording_is_as_it_was_read_last():
    said, known = everything_said().splitlines(), SNAPSHOT.read_text().splitlines()
    changed = [f"+ {line}" for line in said if line not in known]
    changed += [f"- {line}" for line in known if line not in said]
    assert said == known, "\n".join(changed + ["python tests/test_messages.py takes them over"])


if __name__ == "__main__":
    SNAPSHOT.write_text(everything_said())
