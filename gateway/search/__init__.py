"""What a scan of messages needs beside the ports: its filter, its budgets, its end, and CEL in processes of its own."""
