"""Where Spark reads and writes: the Data Sources `commitlog` and `rocketmq`."""
