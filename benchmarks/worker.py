"""A function of a benchmark in a process of its own: what `common.Worker` starts."""

import json
import sys
from collections.abc import Generator
from contextlib import redirect_stdout
from importlib import import_module


def main() -> None:
    module, function, given = sys.argv[1:]
    answers = sys.stdout
    with redirect_stdout(sys.stderr):  # what libraries print is no answer
        answer = getattr(import_module(f"benchmarks.{module}"), function)(*json.loads(given))
        for line in answer if isinstance(answer, Generator) else [answer]:
            answers.write(json.dumps(line) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
