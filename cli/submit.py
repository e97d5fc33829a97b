"""What spark-submit runs: the `reput pipeline` verb that its arguments name, in the session that spark-submit prepares.

    spark-submit --master ... --py-files reput.zip submit.py rebuild --store DIR --out DIR

`reput.zip` is written by `reput pipeline ship`. Master, memory and cores are spark-submit's to say: the session is there
before the verb asks for one, so that its own `--master` says nothing.
"""

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run one verb; its exit code."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]  # its `pipeline` is not the one meant
    import pipeline  # from the zip: unpacks it, so that what follows is imported from files
    from cli.main import main as run

    if arguments and not set(arguments) & {"--help", "-h"}:
        pipeline.session()
    return run(["pipeline", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
