"""The console: pages over the gateway's own answers, for people and, as JSON, for programs."""
