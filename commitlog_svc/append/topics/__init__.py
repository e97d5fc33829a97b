"""Topics and their queues, as appends need and change them."""
