"""What knows nothing of neighbours: checks, threads, tables, files."""
