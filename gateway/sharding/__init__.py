"""The shards there are: found, watched, guarded against, and what each can hold."""
