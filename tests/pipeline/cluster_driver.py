"""A driver that runs one verb of `reput pipeline` after another in one session of a cluster; started by tests.

    python -m tests.pipeline.cluster_driver MASTER COMMANDS

It reads a JSON list from each line of the pipe COMMANDS: the arguments of a verb, or `["python", CODE]`, which gets `spark`
and sets `answer`. It prints one JSON object for each: `code`, `out`, `err`, `seconds`.
"""

import contextlib
import io
import json
import sys
import time
import traceback
from typing import Any

import pipeline
from cli.main import main as run_verb
from tests.pipeline.spark_home import spark_environment

CONF = {
    "spark.ui.enabled": False,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": spark_environment()["SPARK_SUBMIT_OPTS"],
    "spark.sql.shuffle.partitions": 4,
    # Each task that is slower than the others runs twice.
    "spark.speculation": True,
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": 1.1,
    "spark.speculation.quantile": 0.25,
    "spark.speculation.minTaskRuntime": "50ms",
}


def main() -> None:
    master, commands = sys.argv[1:]
    spark = pipeline.session(master=master, **CONF)
    spark.sparkContext.setLogLevel("ERROR")
    print("ready", flush=True)
    with open(commands, encoding="utf-8") as lines:
        for line in lines:
            print(json.dumps(run(spark, json.loads(line))), flush=True)


def run(spark: Any, arguments: list[str]) -> dict[str, Any]:
    begin, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if arguments[0] == "python":
                names: dict[str, Any] = {"spark": spark}
                exec(arguments[1], names)
                code, answer = 0, names["answer"]
                out.write(json.dumps(answer))
            else:
                code = run_verb(["pipeline", *arguments])
        except BaseException:
            traceback.print_exc()
            code = -1
    return {
        "code": code,
        "out": out.getvalue(),
        "err": err.getvalue(),
        "seconds": round(time.monotonic() - begin, 1),
    }


if __name__ == "__main__":
    main()
