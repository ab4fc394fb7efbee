"""Tools that are independent of neighbours: checks, threads, tables, files."""
