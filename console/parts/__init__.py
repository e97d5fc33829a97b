"""Parts of pages that several pages use."""
