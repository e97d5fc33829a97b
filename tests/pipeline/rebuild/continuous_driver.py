"""The driver of one continuous rebuild, to be killed: `python -m tests.pipeline.rebuild.continuous_driver TARGET OUT ...`."""

import sys
from pathlib import Path

import pipeline
from cli.pipeline.rebuild_builders import OnlineBuilders
from pipeline.rebuild import continuous
from pipeline.rebuild.out import StoreLayout
from store.readers.index_reader import IndexLayout

LAYOUT = StoreLayout(4000, IndexLayout(500, 1000))


def main() -> int:
    """Follows the log until it is caught up with."""
    target, out, scratch = sys.argv[1:]
    spark = pipeline.session(
        **{
            "spark.master": "local[1]",
            "spark.ui.enabled": False,
            "spark.local.dir": scratch,
            "spark.driver.memory": "512m",
        }
    )
    spark.sparkContext.setLogLevel("ERROR")
    print("session", flush=True)
    continuous.run(
        spark,
        target,
        Path(out),
        OnlineBuilders(LAYOUT),
        until_caught_up=True,
        batch_bytes_max=60_000,
        trigger_seconds=0.0,
        on_started=lambda query: print("started", flush=True),
    )
    print("caught up", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
