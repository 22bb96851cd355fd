"""Draws figures in a process of its own: what a figure crashes is not the run that it is of.

Executed as a file, which imports nothing of fedtopics: a line of JSON comes in for each figure, a
specification of Vega-Lite, and one goes out for each as it is drawn, its SVG, or null.
"""

import json
import sys
from typing import Any


def draw() -> None:
    """Draw what comes, one after the other; no figure may load anything."""
    import vl_convert

    version, *figures = sys.stdin.buffer.read().decode().split("\n")
    for figure in figures:
        svg: Any = None
        try:
            svg = vl_convert.vegalite_to_svg(figure, vl_version=version, allowed_base_urls=[])
        except Exception as error:  # of a library: any kind
            sys.stderr.write(f"{type(error).__name__}\n")
        sys.stdout.write(json.dumps(svg) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    draw()
