"""Consumer groups go to a broker of RocketMQ that opens the store, and come back from it."""
