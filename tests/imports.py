"""Which modules of ``lib`` a source imports."""

import ast
from functools import cache


@cache
def imported(source: str) -> frozenset[str]:
    """The names of the modules, also of those imported inside functions.

    >>> sorted(imported("from lib import data, models as m\\nimport lib.training"))
    ['data', 'models', 'training']
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            if node.module == "lib":
                found |= {alias.name for alias in node.names}
            elif (node.module or "").startswith("lib."):
                found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("lib.")}
    return frozenset(found)
