"""The context of a finding, read from the syntax tree.

Tools report lines; whether a finding matters depends on its context. A password in a
test isn't a secret, and input can't change a query made of constants.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from agentgym.scenarios.code_review.guide import HOUSE_TOPICS

Place = Literal[
    "live_code",
    "expected_error",
    "test_code",
    "house_rules",
    "constants_only",
    "no_secret",
]
"""The kind of place of a finding, the first of these that is true:

expected_error: a test expects the line to raise;
test_code: in a test file or test function;
house_rules: anywhere, but each project has its own rule;
constants_only: the flagged code, or the loop around it, consists of constants;
no_secret: nothing nearby is named like a secret;
live_code: none of these.
"""

_FROM_CONSTANTS = frozenset({"sql-injection", "shell-injection", "eval-call"})
_IN_LOOP = frozenset(
    {"query-in-loop", "sort-in-loop", "string-concat", "regex-in-loop", "pop-front"}
)
_FOR_SECRETS = frozenset({"weak-hash", "insecure-random"})
_SECRET = re.compile(
    r"(?i)password|passwd|secret|token|nonce|salt|api_?key|session_id|credential"
)
_RISKY = re.compile(
    r"(?i)\b(?:subprocess|os\.system|os\.popen|pickle|marshal|yaml|hashlib|random|"
    r"requests|urllib|eval|exec|execute|executemany|connect|login)\b|password|secret"
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that `analyze_code` reports about a file.

    Attributes:
        risky_code: Whether it may use a shell, a database, the network or secrets,
            names a secret, or relies on an assert.
        loops: Whether it has a loop.
    """

    lines: int
    functions: int
    classes: int
    longest_function: int
    risky_code: bool
    loops: bool
    tests: bool


class Surroundings:
    """Answers questions about a file's lines from its syntax tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self._is_test = name.startswith("test_")
        self._nodes = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
        functions = [n for n in self._nodes if isinstance(n, _Function)]
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        self.facts = Facts(
            lines=max((n.end_lineno or 0 for n in tree.body), default=0),
            functions=len(functions),
            classes=sum(isinstance(n, ast.ClassDef) for n in self._nodes),
            longest_function=max(map(_length, functions), default=0),
            risky_code=any(map(_is_risky, calls)) or any(map(_is_weak, self._nodes)),
            loops=any(
                isinstance(n, ast.For | ast.AsyncFor | ast.While) for n in self._nodes
            ),
            tests=self._is_test,
        )

    def place(self, line: int, problem: str) -> Place:
        """The kind of place of a problem at a line."""
        around = [n for n in self._nodes if n.lineno <= line <= (n.end_lineno or 0)]
        functions = [n for n in around if isinstance(n, _Function)]
        if problem == "useless-expression" and any(map(_expects_error, around)):
            return "expected_error"
        if self._is_test or any(f.name.startswith("test_") for f in functions):
            return "test_code"
        if problem in HOUSE_TOPICS:
            return "house_rules"
        if problem in _FROM_CONSTANTS and not _from_outside(around, functions):
            return "constants_only"
        if problem in _IN_LOOP and _loops_over_constants(around):
            return "constants_only"
        if problem in _FOR_SECRETS and not _near_secret(around, functions):
            return "no_secret"
        return "live_code"


def _expects_error(node: ast.stmt) -> bool:
    return isinstance(node, ast.With) and any(
        isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func) == "pytest.raises"
        for item in node.items
    )


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_risky(call: ast.Call) -> bool:
    passed = " ".join(k.arg or "" for k in call.keywords)
    return bool(_RISKY.search(f"{ast.unparse(call.func)} {passed}"))


def _is_weak(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assert):
        return True
    return isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and _SECRET.search(t.id) for t in node.targets
    )


def _from_outside(around: list[ast.stmt], functions: list[_Function]) -> bool:
    """Whether the innermost statement uses the function's arguments."""
    if not around:
        return True
    given = {
        a.arg
        for f in functions
        for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)
    }
    given |= {
        t.id
        for f in functions
        for n in ast.walk(f)
        if isinstance(n, ast.Assign | ast.For | ast.withitem)
        for t in ast.walk(_target(n))
        if isinstance(t, ast.Name)
    }
    used: set[str] = set()
    for node in ast.walk(max(around, key=lambda n: n.lineno)):
        # A method's object, such as a cursor, isn't part of the text.
        if isinstance(node, ast.Call):
            for argument in (*node.args, *(k.value for k in node.keywords)):
                used |= _names(argument)
        elif isinstance(node, ast.BinOp | ast.JoinedStr):
            used |= _names(node)
    return bool(used & given)


def _target(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.Assign):
        return node.targets[0]
    if isinstance(node, ast.withitem):
        return node.optional_vars or ast.Pass()
    assert isinstance(node, ast.For)
    return node.target


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _loops_over_constants(around: list[ast.stmt]) -> bool:
    loops = [n for n in around if isinstance(n, ast.For | ast.AsyncFor | ast.While)]
    if not loops or isinstance(loops[-1], ast.While):
        return False
    over = loops[-1].iter
    if isinstance(over, ast.Tuple | ast.List | ast.Set):
        return all(isinstance(e, ast.Constant) for e in over.elts)
    return isinstance(over, ast.Name) and over.id.isupper()


def _near_secret(around: list[ast.stmt], functions: list[_Function]) -> bool:
    named = [f.name for f in functions]
    named += [ast.unparse(max(around, key=lambda n: n.lineno))] if around else []
    return bool(_SECRET.search(" ".join(named)))
