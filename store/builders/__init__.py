"""From records to queue units and index entries, pure: every builder makes the same bytes through here."""
