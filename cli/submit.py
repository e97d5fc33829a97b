"""The program for spark-submit: runs a `reput pipeline` verb in the session that spark-submit prepares.

    spark-submit --master ... --py-files reput.zip submit.py rebuild --store DIR --out DIR

`reput.zip` is written by `reput pipeline ship`. Master, memory and cores are arguments of spark-submit: the
session exists before the verb asks for one, so the verb's own `--master` has no effect.
"""

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run one verb; its exit code."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [
        path for path in sys.path if Path(path).resolve() != here
    ]  # the `pipeline` in this folder is another package
    import pipeline  # from the zip: it unpacks itself, so that later imports read files
    from cli.main import main as run

    if arguments and not set(arguments) & {"--help", "-h"}:
        pipeline.session()
    return run(["pipeline", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
