"""Pure codecs: bytes to frozen dataclasses and back. No I/O."""
