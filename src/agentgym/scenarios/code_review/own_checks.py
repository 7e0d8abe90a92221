"""Checks on syntax trees that ruff and bandit lack; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentgym.scenarios.code_review.guide import Category

_QUERIES = frozenset({"execute", "executemany", "query"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Report:
    """A rule's finding in a line."""

    line: int
    rule: str
    category: Category
    name: str
    fix: str = ""


def in_file(tree: ast.Module) -> Iterator[Report]:
    """Problems within a single file."""
    yield from _past_the_end(tree)
    for function in ast.walk(tree):
        if isinstance(function, _Function):
            yield from _in_loops(function)


def across_files(name: str, trees: Mapping[str, ast.Module]) -> Iterator[Report]:
    """Imports and calls in a file that don't match the other files.

    Args:
        name: The file's name.
        trees: All files of the submission, by name.
    """
    modules = {other.removesuffix(".py"): tree for other, tree in trees.items()}
    known: dict[str, _Function] = {}
    for node in trees[name].body:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            theirs = _top_level(modules[node.module])
            for alias in node.names:
                if alias.name not in theirs:
                    yield Report(node.lineno, "A103", "bug", "missing-name")
                    continue
                found = theirs[alias.name]
                if isinstance(found, _Function):
                    known[alias.asname or alias.name] = found
    for call in ast.walk(trees[name]):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            function = known.get(call.func.id)
            if function is not None and not _accepts(function.args, call):
                yield Report(call.lineno, "A102", "bug", "wrong-arguments")


def _top_level(tree: ast.Module) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, _Function | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id: node for t in targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name): node for a in node.names}
    return found


def _accepts(takes: ast.arguments, call: ast.Call) -> bool:
    if any(isinstance(a, ast.Starred) for a in call.args):
        return True
    names = {keyword.arg for keyword in call.keywords}
    if None in names:
        return True
    positional = [a.arg for a in (*takes.posonlyargs, *takes.args)]
    if len(call.args) > len(positional) and takes.vararg is None:
        return False
    keyword_only = [a.arg for a in takes.kwonlyargs]
    if takes.kwarg is None and not names <= {*positional, *keyword_only}:
        return False
    needed = positional[: len(positional) - len(takes.defaults)]
    needed += [
        name
        for name, default in zip(keyword_only, takes.kw_defaults, strict=True)
        if default is None
    ]
    return set(needed) <= {*positional[: len(call.args)], *names}


def _past_the_end(tree: ast.Module) -> Iterator[Report]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and (of := _length_of(node.slice)):
            if ast.dump(node.value) == of:
                yield Report(node.lineno, "A101", "bug", "index-past-end")
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            of = _range_past(node.iter)
            for inner in ast.walk(node):
                if (
                    of
                    and isinstance(inner, ast.Subscript)
                    and isinstance(inner.slice, ast.Name)
                    and inner.slice.id == node.target.id
                    and ast.dump(inner.value) == of
                ):
                    yield Report(inner.lineno, "A101", "bug", "index-past-end")


def _length_of(node: ast.AST) -> str:
    """The dumped argument of a `len` call; "" if the node isn't one."""
    is_length = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and len(node.args) == 1
    )
    return ast.dump(node.args[0]) if is_length and isinstance(node, ast.Call) else ""


def _range_past(node: ast.AST) -> str:
    """The dumped `x` of `range(len(x) + 1)`, which goes one too far; "" otherwise."""
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and node.args
    ):
        return ""
    end = node.args[0] if len(node.args) == 1 else node.args[1]
    if (
        isinstance(end, ast.BinOp)
        and isinstance(end.op, ast.Add)
        and isinstance(end.right, ast.Constant)
        and end.right.value == 1
    ):
        return _length_of(end.left)
    return ""


def _in_loops(function: _Function) -> Iterator[Report]:
    lists, texts = _started_as(function)
    seen: set[tuple[int, str]] = set()
    for loop in ast.walk(function):
        if not isinstance(loop, _Loop):
            continue
        for statement in loop.body:
            for node in ast.walk(statement):
                found = _slow(node, lists, texts)
                line = getattr(node, "lineno", 0)
                if found is not None and (line, found[0]) not in seen:
                    seen.add((line, found[0]))
                    yield Report(line, found[0], "performance", found[1])


def _started_as(function: _Function) -> tuple[set[str], set[str]]:
    """Names that start as a list, and names that start as an empty string."""
    lists, texts = set(), set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
        value = node.value
        if isinstance(value, ast.List | ast.ListComp) or (
            isinstance(value, ast.Call) and _called(value) in ("list", "sorted")
        ):
            lists |= names
        elif isinstance(value, ast.Constant) and value.value == "":
            texts |= names
    return lists, texts


def _called(call: ast.Call) -> str:
    """The last part of the called function's name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _slow(node: ast.AST, lists: set[str], texts: set[str]) -> tuple[str, str] | None:
    """Rule and name of a slow operation in a loop; None if there is none."""
    if isinstance(node, ast.Call):
        name, method = _called(node), isinstance(node.func, ast.Attribute)
        at_front = bool(
            node.args
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == 0
        )
        if method and name in _QUERIES:
            return "A201", "query-in-loop"
        if name == ("sort" if method else "sorted"):
            return "A202", "sort-in-loop"
        if method and at_front and name in ("pop", "insert"):
            return "A205", "pop-front"
        if name == "compile" and ast.unparse(node.func) == "re.compile":
            return "A206", "regex-in-loop"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        where = node.comparators[0]
        if isinstance(where, ast.Name) and where.id in lists:
            return "A203", "list-membership"
    if (
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.target, ast.Name)
        and node.target.id in texts
    ):
        return "A204", "string-concat"
    return None
