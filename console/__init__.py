"""The console: the gateway's answers as web pages for people and as JSON for programs."""
