"""The tree of errors in the docstring of `fedtopics.errors` is that of the classes."""

import re

from fedtopics import errors


def test_the_docstring_draws_the_tree_of_errors() -> None:
    drawn = {}
    branch = ["Exception"]  # the classes above the present line
    for indent, name, code in re.findall(
        r"^( +)(\w+)(?: \((\d)\))?  ", errors.__doc__ or "", re.MULTILINE
    ):
        del branch[len(indent) // 4 :]
        drawn[name] = (branch[-1], code)
        branch.append(name)
    classes = {
        name: (kind.__bases__[0].__name__, str(vars(kind).get("exit_code", "")))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert drawn == classes
