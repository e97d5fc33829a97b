"""The real code in a simulated world: virtual time, disks, links and a coordinator, from a seed (ADR 0179)."""
