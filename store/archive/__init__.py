"""Messages that retention has removed, kept as Parquet files: their layout, and lookups of single messages."""
