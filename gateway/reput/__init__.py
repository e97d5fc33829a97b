"""`reput.gateway.v1`, our own contract: one file for what answers about each subject, and the servicer that has them all."""
