"""``vllm bench serve`` without the ``vllm`` command, which asks for a distribution that the CPU build has not.

Run by a Python that has vLLM, with bench's own arguments; it runs once for each line on its standard input, a
file for the result and a seed, and answers each with a line. Nothing of kvroom is imported.
"""

import contextlib
import os
import sys


def run() -> None:
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    for line in sys.stdin:
        file, seed = line.split()
        words = [*sys.argv[1:], "--save-result", "--save-detailed", "--result-filename", file, "--seed", seed]
        with contextlib.redirect_stdout(sys.stderr):
            main(parser.parse_args(words))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    sys.stdout.flush()
    os._exit(0)  # what is imported would take seconds to end, and complain


if __name__ == "__main__":
    run()
