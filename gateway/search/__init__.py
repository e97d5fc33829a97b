"""SearchMessages: the scan of a topic, its filter and budgets, and the evaluation of CEL in separate processes."""
