"""The log on other machines: raw bytes of another writer, epochs, followers, and who leads."""
