"""The two sides of a row, and the third that both are held against: ours, RocketMQ's, Spark's, a bare echo."""
