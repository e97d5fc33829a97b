"""A driver to be killed: topic `From` into Parquet files and into topic `Into`, both to the end of what is there.

    python -m tests.pipeline.rocketmq.copy_topic ENDPOINT DIRECTORY MESSAGES_PER_BATCH

It goes on from the checkpoints in DIRECTORY; when it came to the end, DIRECTORY/numbers.json holds what the files hold,
as Spark reads them.
"""

import json
import sys
from pathlib import Path

import pipeline
from pipeline.spark_session import close_session


def main(endpoint: str, directory: Path, messages_per_batch: int) -> None:
    spark = pipeline.session(
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.shuffle.partitions": 4,
        }
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("rocketmq").options(
        endpoint=endpoint,
        subscribe="From",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(messages_per_batch),
    )
    to_files = source.load().writeStream.format("parquet").option("checkpointLocation", str(directory / "files"))
    to_topic = source.load().select("body", "keys").writeStream.format("rocketmq")
    to_topic = to_topic.options(endpoint=endpoint, topic="Into", checkpointLocation=str(directory / "topic"))
    queries = [
        to_files.trigger(availableNow=True).start(str(directory / "out")),
        to_topic.trigger(availableNow=True).start(),
    ]
    for query in queries:
        query.awaitTermination()
    rows = spark.read.parquet(str(directory / "out")).selectExpr("cast(cast(body as string) as int) number").collect()
    (directory / "numbers.json").write_text(json.dumps([row.number for row in rows]))
    close_session(spark)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
