"""The options of a state as a trie of tokens.

Two completions share their tokens up to where they part. Where they part, something is
decided; everywhere else the next token is given. So the probability of an option under
the constraint is the product, over the places where its path parts from others, of the
probability of its token among those that continue some option there.

Only tokens on the way to such a place must be read by the model: the tail behind the
last parting is certain, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

TOOL, VALUE = 0, 1
"""What an edge decides: which group of options, or which one within its group."""


class Trie:
    """Nodes to read, and edges to choose among.

    Node -1 is the prompt's last token. Node numbers are such that a parent comes before
    its children.

    Attributes:
        tokens: Of each node.
        parents: Of each node; -1 for those that follow the prompt.
        rows: Node at which each edge begins. Edges of one node stand together.
        labels: Token of each edge.
        nodes: Number, from 0, of the place at which each edge begins.
        kinds: `TOOL` or `VALUE` for each edge.
        paths: Edges of each option, in order.
        depths: For each of these edges, which token of the option it is.
    """

    def __init__(
        self, completions: Sequence[Sequence[int]], groups: Sequence[int]
    ) -> None:
        children: list[dict[int, int]] = [{}]
        token, parent = [-1], [-1]
        below: list[set[int]] = [set()]
        paths: list[list[tuple[int, int]]] = []
        for completion, group in zip(completions, groups, strict=True):
            node, path = 0, []
            below[0].add(group)
            for label in completion:
                path.append((node, label))
                if label not in children[node]:
                    children[node][label] = len(children)
                    children.append({})
                    below.append(set())
                    token.append(label)
                    parent.append(node)
                node = children[node][label]
                below[node].add(group)
            paths.append(path)
        partings = [n for n, following in enumerate(children) if len(following) > 1]
        needed: set[int] = set()
        for n in partings:
            while n > 0 and n not in needed:
                needed.add(n)
                n = parent[n]
        order = sorted(needed)
        number = {0: -1} | {n: i for i, n in enumerate(order)}
        self.tokens = [token[n] for n in order]
        self.parents = [number[parent[n]] for n in order]
        edge: dict[tuple[int, int], int] = {}
        rows: list[int] = []
        labels: list[int] = []
        nodes: list[int] = []
        kinds: list[int] = []
        for place, n in enumerate(partings):
            for label in children[n]:
                edge[n, label] = len(rows)
                rows.append(number[n])
                labels.append(label)
                nodes.append(place)
                kinds.append(TOOL if len(below[n]) > 1 else VALUE)
        self.rows = np.array(rows, np.int64)
        self.labels = np.array(labels, np.int64)
        self.nodes = np.array(nodes, np.int64)
        self.kinds = np.array(kinds, np.int64)
        self.paths = [
            np.array([edge[step] for step in path if step in edge], np.int64)
            for path in paths
        ]
        self.depths = [
            [depth for depth, step in enumerate(path) if step in edge] for path in paths
        ]

    def edges_at(self, place: int) -> Ints:
        """The edges that begin at a place."""
        first, last = np.searchsorted(self.nodes, [place, place + 1])
        return np.arange(first, last)

    def to_read(self, places: Iterable[int]) -> list[int]:
        """Nodes on the way to these places, parents first."""
        wanted = np.isin(self.nodes, list(places))
        keep: set[int] = set()
        for row in {int(r) for r in self.rows[wanted]}:
            while row >= 0 and row not in keep:
                keep.add(row)
                row = self.parents[row]
        return sorted(keep)

    def places(self, options: Iterable[int] = (), kind: int | None = None) -> list[int]:
        """Places that some of these options pass, or all of a kind without options."""
        if kind is not None:
            return sorted({int(p) for p in self.nodes[self.kinds == kind]})
        return sorted({int(p) for o in options for p in self.nodes[self.paths[o]]})
