"""Who a client of the gateway is, and what it may do."""
