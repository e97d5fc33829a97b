"""Messages that retention has dropped, kept as Parquet: their layout, and the lookup of one of them."""
