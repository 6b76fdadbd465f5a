"""What several test folders share; one noun per file."""
