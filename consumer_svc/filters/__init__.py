"""Which messages a subscription asks for: by tags, or by an SQL92 expression over properties. Pure."""
