"""Backups of a shard's log: `reput backup` makes and checks them, `reput restore` makes a store of one."""
