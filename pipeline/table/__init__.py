"""The job `table`: a topic as an Apache Iceberg table."""
