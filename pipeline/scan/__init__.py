"""format("commitlog"): the log as rows."""
