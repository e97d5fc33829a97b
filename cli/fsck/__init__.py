"""`reput fsck`: audit and repair of a store root."""
