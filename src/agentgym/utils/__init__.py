"""Files, downloads and other helpers."""
